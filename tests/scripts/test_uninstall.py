"""What setup adds to a machine is listed; `make uninstall` removes that, and nothing else.

apt and dpkg are stand-ins with a list of packages: no test changes this machine.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = (
    *("bash", "cat", "comm", "dirname", "env", "find", "grep", "mkdir", "mktemp", "mv", "python3"),
    *("rm", "rmdir", "sed", "sort", "tail", "touch", "uv"),
)

CACHED = ("chromium", "engine", "go", "lab", "pulumi", "pycache", "pypy3", "repos", "sshd")
"""What gpuctl and its tests keep in the cache (docs/look-up/places.md)."""

APT_GET = """#!/bin/bash
echo "apt-get $*" >> "$MACHINE/calls"
[ "$1" = install ] || exit 0
echo libedit2 >> "$MACHINE/packages"
if [ -e "$MACHINE/broken" ]; then echo "E: no room"; exit 100; fi
printf 'mmdebstrap\\nopenssh-client\\n' >> "$MACHINE/packages"
"""
DPKG_QUERY = """#!/bin/bash
if [ $# -eq 4 ]; then grep -qxF "$4" "$MACHINE/packages" && printf installed; exit; fi
sed 's/^/installed /' "$MACHINE/packages"
"""
DPKG = """#!/bin/bash
echo "dpkg $*" >> "$MACHINE/calls"
touch "$MACHINE/needed"
for name in "${@:2}"; do
  grep -qxF "$name" "$MACHINE/needed" && continue
  sed -i "/^$name$/d" "$MACHINE/packages"
done
"""


class Machine:
    """A machine of root's with a few packages; its home and the checkout are folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkout = folder / "checkout"
        self.bin = folder / "bin"
        self.bin.mkdir()
        shutil.copytree(ROOT / "scripts", self.checkout / "scripts")
        for tool in TOOLS:
            if found := shutil.which(tool):
                (self.bin / tool).symlink_to(found)
        self.program("id", "#!/bin/bash\necho 0\n")
        self.program("apt-get", APT_GET)
        self.program("dpkg-query", DPKG_QUERY)
        self.program("dpkg", DPKG)
        (folder / "packages").write_text("bash\nlibc6\n")
        self.listed = folder / "home/.local/state/gpuctl/installed"

    def program(self, name: str, script: str) -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    @property
    def packages(self) -> list[str]:
        return (self.folder / "packages").read_text().split()

    def run(self, script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        # the labs of the machine that tests run on are nobody's to remove
        text = (ROOT / "scripts" / script).read_text().replace("/run/gpuctl", f"{self.folder}/run")
        text = text.replace("/var/lib/", f"{self.folder}/var/").replace("/run/sshd", "/nowhere")
        (self.checkout / "scripts" / script).write_text(text)
        return subprocess.run(
            [self.checkout / "scripts" / script, *arguments],
            env={
                "PATH": str(self.bin),
                "HOME": str(self.folder / "home"),
                "MACHINE": str(self.folder),
                "TMPDIR": str(self.folder),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_setup_lists_what_was_not_there_before(machine: Machine) -> None:
    done = machine.run("setup")
    assert done.returncode == 0, done.stderr
    assert "`make uninstall` removes them again" in done.stdout
    assert machine.listed.read_text().splitlines() == [
        f"folder {machine.checkout}/.venv",
        f"folder {machine.folder}/home/.cache/uv",
        "package libedit2",  # nobody asked for it: apt brought it along
        "package mmdebstrap",
        "package openssh-client",
    ]
    assert machine.listed.stat().st_mode & 0o777 == 0o600
    assert machine.listed.parent.stat().st_mode & 0o777 == 0o700
    assert "openssh-server" not in (machine.folder / "calls").read_text()


def test_what_a_broken_apt_get_left_is_listed_too(machine: Machine) -> None:
    (machine.folder / "broken").touch()
    done = machine.run("setup")
    assert (done.returncode, done.stderr) == (
        1,
        "E: no room\nsetup: apt-get failed, its last lines are above\n",
    )
    assert "package libedit2\n" in machine.listed.read_text()


def test_what_was_there_before_is_not_listed_and_stays(machine: Machine) -> None:
    (machine.checkout / ".venv").mkdir()
    (machine.folder / "home/.cache/uv").mkdir(parents=True)
    machine.run("setup")
    assert "folder" not in machine.listed.read_text()
    (machine.checkout / "build").mkdir()
    for name in CACHED:
        (machine.folder / "home/.cache/gpuctl" / name / "folder").mkdir(parents=True)
    done = machine.run("uninstall", "--yes")
    assert done.returncode == 0, done.stderr
    assert machine.packages == ["bash", "libc6"]
    assert (machine.checkout / ".venv").is_dir()
    assert [path.name for path in (machine.folder / "home/.cache").iterdir()] == ["uv"]
    assert not (machine.checkout / "build").exists()
    assert not machine.listed.exists()
    assert machine.run("uninstall", "--yes").stdout == "uninstall: nothing of gpuctl is here\n"


def test_without_an_answer_nothing_is_removed(machine: Machine) -> None:
    machine.run("setup")
    (machine.checkout / ".venv").mkdir()
    before = machine.packages
    done = machine.run("uninstall")
    assert done.stdout.splitlines() == [
        "uninstall removes",
        "  package libedit2",
        "  package mmdebstrap",
        "  package openssh-client",
        f"  folder {machine.checkout}/.venv",
        f"and keeps {machine.listed.parent} (records, history of runs) and"
        f" {machine.folder}/home/.config/gpuctl (your settings)",
        "uninstall: nothing was removed",
    ]
    assert machine.packages == before
    assert (machine.checkout / ".venv").is_dir()


def test_a_package_that_another_one_needs_since_is_kept(machine: Machine) -> None:
    machine.run("setup")
    (machine.folder / "needed").write_text("openssh-client\n")
    done = machine.run("uninstall", "--yes")
    assert "uninstall: kept, because other packages need them: openssh-client\n" in done.stdout
    assert machine.packages == ["bash", "libc6", "openssh-client"]
    assert machine.listed.read_text() == "package openssh-client\n"


def test_a_machine_with_a_cluster_that_bills_keeps_what_removes_it(machine: Machine) -> None:
    machine.run("setup")
    (machine.listed.parent / "aws/clusters/demo").mkdir(parents=True)
    done = machine.run("uninstall", "--yes")
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        "uninstall: clusters of this machine may exist and bill: demo; `gpuctl down` them first\n",
    )
    assert "openssh-client" in machine.packages
