"""A stand-in for Ubuntu on AWS, as strict as apt, modprobe and systemd are where steps use them.

One program answers to the names of the tools. Its state is a JSON file: the packages of the
repositories, those that are installed, modules that are loaded, what the fabric manager needs.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.provision.test_cloud_init import Sandbox

KERNEL = "6.14.0-1018-aws"

NVIDIA = {
    "nvidia-fabricmanager": ["580.105.08-1", "580.95.05-1", "580.65.06-1"],
    "nvidia-fabricmanager-575": ["575.57.08-1"],
    "nvidia-fabricmanager-570": ["570.172.08-1"],
    "nvlsm": ["2025.06.11-1"],
}
"""NVIDIA's repository: from R580 on, `nvidia-fabricmanager-580` is only provided by
`nvidia-fabricmanager`, and a version of it cannot be asked for
(https://github.com/NVIDIA/gpu-driver-container/pull/451, 2026-11-22)."""

UBUNTU = {"infiniband-diags": ["50.0-2ubuntu0.2"]}
"""Ubuntu's repositories. There is no linux-modules-extra for the AWS kernel 7.0, and those of 6.8,
6.14 and 6.17 lack `ib_umad`: linux-modules has it (packages of noble-updates, 2026-11-23)."""

_PROGRAM = '''\
#!{python}
"""Stand-in for apt-get, apt-cache, modinfo, modprobe, uname, systemctl, journalctl."""
import fnmatch, json, pathlib, sys

FILE = pathlib.Path({state!r})
state = json.loads(FILE.read_text())
name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]


def end(code=0, text=""):
    FILE.write_text(json.dumps(state))
    (sys.stderr if code else sys.stdout).write(text + "\\n" if text else "")
    sys.exit(code)


def install(wanted):
    package, _, version = wanted.partition("=")
    known = state["packages"].get(package)
    if known is None:
        end(100, "E: Unable to locate package " + package)
    fitting = [each for each in known if fnmatch.fnmatch(each, version or "*")]
    if not fitting:
        end(100, "E: Version '%s' for '%s' was not found" % (version, package))
    state["installed"][package] = fitting[0]


def start_fabric_manager():
    """Return the reason why it does not start; None if it does."""
    found = [v for p, v in state["installed"].items() if p.startswith("nvidia-fabricmanager")]
    if not found or found[0].partition("-")[0] != state["driver"]:
        return "fabric manager version and NVIDIA driver version do not match"
    if state["nvlink5"] and "ib_umad" not in state["modules"]:
        return 'Kernel module "ib_umad" has not been loaded, fabric manager cannot be started'
    if state["nvlink5"] and not {{"nvlsm", "infiniband-diags"}} <= set(state["installed"]):
        return "NV_WARN_NOTHING_TO_DO"
    if state["failures"] > 0:
        state["failures"] -= 1
        return "not all local fabric manager instances finished their configuration"
    return None


def systemctl(words):
    words = [word for word in words if not word.startswith("-")]
    if words[0] == "start":
        state["wanted"] = True
    if words[0] == "is-active":  # systemd has tried again since somebody last asked
        state["reason"] = start_fabric_manager() if state.get("wanted") else "inactive"
        end(0 if state["reason"] is None else 3)
    end()


if name == "apt-get" and "install" in words:
    for wanted in words[words.index("install") + 1 :]:
        if not wanted.startswith("-"):
            install(wanted)
elif name == "apt-cache":
    if words[0] == "pkgnames":
        end(0, "\\n".join(p for p in state["packages"] if p.startswith(words[1])))
    if words[0] != "madison":
        end(100, "E: the stand-in for apt-cache knows madison and pkgnames alone")
    rows = [(p, v) for p in words[1:] for v in state["packages"].get(p, ())]
    end(0, "\\n".join(" %s | %s | https://repository/ubuntu  Packages" % row for row in rows))
elif name == "modinfo":
    end(0, state["driver"])
elif name == "uname":
    end(0, {kernel!r})
elif name == "modprobe":
    state["modules"].append(words[0])
elif name == "systemctl":
    systemctl(words)
elif name == "journalctl":
    end(0, "nv-fabricmanager: " + str(state.get("reason")))
end()
'''


class Ubuntu(Sandbox):
    """A sandbox whose tools are as strict as those of Ubuntu 24.04 with NVIDIA's repository."""

    def __init__(self, root: Path, **state: Any) -> None:
        super().__init__(root)
        self._file = root / "ubuntu.json"
        start: dict[str, Any] = {"packages": {**NVIDIA, **UBUNTU}, "installed": {}, "modules": []}
        start |= {"driver": "580.95.05", "nvlink5": False, "failures": 0}
        self._file.write_text(json.dumps(start | state))
        program = _PROGRAM.format(python=sys.executable, state=str(self._file), kernel=KERNEL)
        for name in ("apt-get", "apt-cache", "modinfo", "modprobe", "uname"):
            self._stand_in(name, program)
        for name in ("systemctl", "journalctl"):
            self._stand_in(name, program)
        for name in ("cut", "tr"):
            (self.bin / name).symlink_to(f"/usr/bin/{name}")
        self.program("sleep", "true")
        (root / "etc/modules-load.d").mkdir()

    def _stand_in(self, name: str, program: str) -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(program)
        (self.bin / name).chmod(0o755)

    @property
    def state(self) -> Any:
        """Everything that the tools know now."""
        return json.loads(self._file.read_text())
