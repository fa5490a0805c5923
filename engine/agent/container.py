"""Where a node runs what belongs to a run when that has an image: a container.

The container is a file system and devices, and nothing else is apart from the machine: network,
IPC, processes and control groups are the machine's. So a program comes in by entering its mount
namespace, and is in all other respects a child of the worker: in the worker's unit, with the
worker's limits, reached by signals.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

START_S = 50  # below the time that the supervisor gives a node to prepare

_DOCKER = Path("/var/run/docker.sock")
_NVIDIA = Path("/dev/nvidiactl")
_CDI = (Path("/etc/cdi"), Path("/var/run/cdi"))
_INFINIBAND = Path("/dev/infiniband")

# Its first process ends when nobody holds the pipe for writing any more: when the worker ends it,
# or is gone. Opened for both first, it neither waits for the worker nor misses that it went.
_HOLD = 'exec 3<>"$0" 4<"$0" 3>&-; read -r _ <&4'

# The environment comes as a file ($1), so that the machine's nsenter runs without the job's
# libraries; $2 is the namespace.
_ENTER = """\
while IFS= read -r -d '' gpuctl_pair; do export "$gpuctl_pair"; done <&"$1" 2>/dev/null
unset gpuctl_pair
eval "exec $1<&- $2<&-"
cd -- "$HOME" 2>/dev/null || cd /
shift 2
exec "$@"
"""

_NSENTER = "/usr/bin/nsenter"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SYSTEM = (
    "bin", "boot", "dev", "efi", "etc", "lib", "lib64", "proc", "run", "sbin", "snap", "sys", "tmp",
    "usr", "var",
)  # fmt: skip
"""Folders of the root whose mounts are the machine's own."""


def runtime() -> str:
    """Docker where its daemon is, else podman; the same rule as in engine/container_images.py."""
    return "docker" if _DOCKER.exists() else "podman"


class Container:
    """A container of `image` (an ImagePlan) on this machine; `folder` is the run's."""

    def __init__(self, image: dict[str, Any], folder: Path, rank: int) -> None:
        self._image, self._folder = image, folder
        self._name = f"gpuctl-{folder.name}-{rank}"
        self._pipe = folder / f"container-{rank}"
        self._descriptors: list[int] = []
        self._namespace = -1
        self._environment = {"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8"}

    def prepare(self) -> None:
        """The container runs, for as long as this process does at most.

        The image is on this machine. OSError with the runtime's own reason where it cannot start.
        """
        self._pipe.unlink(missing_ok=True)
        os.mkfifo(self._pipe, 0o600)
        self._descriptors.append(os.open(self._pipe, os.O_RDWR))
        self._call("run", *self._options(), self._image["id"], "-c", _HOLD, str(self._pipe))
        told = self._call("inspect", "--format={{.State.Pid}} {{json .Config.Env}}", self._name)
        first, _, pairs = told.partition(" ")
        if first == "0":
            raise OSError(f"container {self._name} ended as soon as it was started")
        self._namespace = os.open(f"/proc/{first}/ns/mnt", os.O_RDONLY)
        self._descriptors.append(self._namespace)
        for name, _, value in (pair.partition("=") for pair in json.loads(pairs) or ()):
            self._environment[name] = value

    def environment(self) -> dict[str, str]:
        """The image's own, and what leads a launcher of the job's to gpuctl's remote agent.

        No login shell is asked: Debian's /etc/profile would put another PATH over the image's.
        """
        agent = str(self._folder / "bin" / "ssh")
        return {
            **self._environment,
            "OMPI_MCA_plm_rsh_agent": agent,
            "PRTE_MCA_plm_ssh_agent": agent,
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": agent,
            "I_MPI_HYDRA_BOOTSTRAP": "ssh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": agent,
        }

    def spawn(
        self, argv: list[str], environment: dict[str, str], **streams: Any
    ) -> subprocess.Popen[bytes]:
        """The program is a child of the worker, with the container's files and devices."""
        given = os.memfd_create("environment")
        try:
            with os.fdopen(given, "wb", closefd=False) as file:
                for name, value in environment.items():
                    file.write(os.fsencode(f"{name}={value}") + b"\0")
            os.lseek(given, 0, os.SEEK_SET)
            loader = ["bash", "-c", _ENTER, "bash", str(given), str(self._namespace)]
            return subprocess.Popen(
                [_NSENTER, f"--mount=/proc/self/fd/{self._namespace}", *loader, *argv],
                env={"PATH": f"{environment.get('PATH', '')}:{_PATH}"},
                start_new_session=True,
                pass_fds=(given, self._namespace),
                **streams,
            )
        finally:
            os.close(given)

    def end(self) -> None:
        """The container is gone, with its files; the image stays."""
        if self._descriptors:
            # Where the runtime fails, the container goes all the same once the pipe is closed.
            with contextlib.suppress(OSError):
                self._call("rm", "--force", self._name)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self._pipe.unlink(missing_ok=True)

    def _options(self) -> list[str]:
        """Of `run`. As root and without the image's entrypoint, whatever the image says."""
        options = ["--detach", "--rm", "--pull=never", "--stop-signal=KILL", f"--name={self._name}"]
        options += ["--no-healthcheck", "--user=0:0", "--entrypoint=bash"]
        options += ["--network=host", "--ipc=host", "--pid=host"]
        if _NVIDIA.exists() or any(_describes_gpus(folder) for folder in _CDI):
            by_name = runtime() == "docker"
            options.append("--gpus=all" if by_name else "--device=nvidia.com/gpu=all")
        if _INFINIBAND.exists():
            options.append(f"--device={_INFINIBAND}")
        for path in (str(self._folder), *data_folders(Path("/proc/self/mounts").read_bytes())):
            options.append(f"--volume={path}:{path}")
        return options

    def _call(self, *arguments: str) -> str:
        """What the runtime says, once it has done it; OSError with its last line otherwise."""
        # In a systemd service podman leaves its monitor in the service; then the end of the
        # worker's unit would end it before it has removed the container.
        environment = {k: v for k, v in os.environ.items() if k != "INVOCATION_ID"}
        program = runtime()
        try:
            done = subprocess.run(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=environment,
                timeout=START_S,
                check=False,
            )
        except FileNotFoundError:
            raise OSError("there is neither docker nor podman") from None
        except subprocess.TimeoutExpired:
            message = f"`{program} {arguments[0]}` did not end within {START_S} s"
            raise OSError(message) from None
        if done.returncode != 0:
            said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
            raise OSError(f"`{program} {arguments[0]}` failed: {said}")
        return done.stdout.strip()


def data_folders(mounts: bytes) -> list[str]:
    """Where data is mounted, by the text of /proc/self/mounts: shared and scratch folders.

    All that is mounted neither on the root nor below the system's own folders.
    """
    found = set()
    for line in mounts.splitlines():
        octal = re.compile(rb"\\([0-7]{3})")  # how proc(5) writes a space
        path = os.fsdecode(octal.sub(lambda match: bytes([int(match[1], 8)]), line.split()[1]))
        top = path.split("/")[1]
        if top and top not in _SYSTEM and ":" not in path:  # a colon would end it in --volume
            found.add(path)
    return sorted(found)


def _describes_gpus(folder: Path) -> bool:
    """Whether a file of CDI there speaks of NVIDIA's GPUs."""
    with contextlib.suppress(OSError):  # what cannot be read names no GPUs
        return any(
            stat.S_ISREG(file.stat().st_mode) and "nvidia.com/gpu" in file.read_text()
            for file in folder.iterdir()
        )
    return False
