"""The place where a node runs the processes of a run: the machine itself, or a container.

The container isolates files and devices. Network, IPC, processes and control groups are the
machine's. So a program only has to enter the container's mount namespace. In all other respects it
is a child of the worker: in the worker's unit, with the worker's limits, and it gets signals.

Both places have the same methods, and are thread-safe once they are prepared. Every spawned process
must be in the worker's unit (its cgroup), so that it ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from engine.agent.node.login_environment import login_environment
from engine.contract.node_plan import ImagePlan

START_S = 50  # less than `prepare_s` in link/times.py


class Devices(NamedTuple):
    """The paths that show what a machine has: docker's daemon, GPUs, RDMA devices."""

    docker: Path = Path("/var/run/docker.sock")
    nvidia: Path = Path("/dev/nvidiactl")
    cdi: tuple[Path, ...] = (Path("/etc/cdi"), Path("/var/run/cdi"))
    infiniband: Path = Path("/dev/infiniband")


DEVICES = Devices()

# The container's first process ends when the pipe has no writer any more: when the worker closes it
# or has died. It opens the pipe for both directions first, so that it does not wait for the worker
# and still notices its end.
_HOLD = 'exec 3<>"$0" 4<"$0" 3>&-; read -r _ <&4'

# $1 is a descriptor with the job's environment: the machine's nsenter must run without the job's
# libraries. $2 is the descriptor of the namespace.
_ENTER = """\
while IFS= read -r -d '' gpuctl_pair; do export "$gpuctl_pair"; done <&"$1" 2>/dev/null
unset gpuctl_pair
eval "exec $1<&- $2<&-"
cd -- "${GPUCTL_WORKDIR:-${GPUCTL_IMAGE_FOLDER:-$HOME}}" 2>/dev/null || cd /
shift 2
exec "$@"
"""

_NSENTER = "/usr/bin/nsenter"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SYSTEM = (
    "bin", "boot", "dev", "efi", "etc", "lib", "lib64", "proc", "run", "sbin", "snap", "sys", "tmp",
    "usr", "var",
)  # fmt: skip
"""Folders below the root whose mounts belong to the system."""


CHOOSE_RUNTIME = f"""\
runtime=podman
if [ -e {DEVICES.docker} ]; then runtime=docker; fi
"""
"""The choice of the runtime, docker if its daemon runs, for scripts that run without the agent."""


class Container:
    """A container of `image` on this machine; `folder` is the run's."""

    def __init__(
        self, image: ImagePlan, folder: Path, rank: int, devices: Devices = DEVICES
    ) -> None:
        self._image, self._folder, self._devices = image, folder, devices
        self._runtime = "docker" if devices.docker.exists() else "podman"
        self._name = f"gpuctl-{folder.name}-{rank}"
        self._pipe = folder / f"container-{rank}"
        self._descriptors: list[int] = []
        self._namespace = -1
        self._environment = {"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8"}

    def prepare(self) -> None:
        """Start the container, which ends with this process at the latest.

        Called once, before the node is reported as prepared. The image must be on this machine.
        Raises OSError with one line for the user on failure.
        """
        self._pipe.unlink(missing_ok=True)
        os.mkfifo(self._pipe, 0o600)
        self._descriptors.append(os.open(self._pipe, os.O_RDWR))
        self._call("run", *self._options(), self._image.id, "-c", _HOLD, str(self._pipe))
        answer = self._call("inspect", "--format={{.State.Pid}} {{json .Config.Env}}", self._name)
        first, _, pairs = answer.partition(" ")
        if first == "0":
            raise OSError(f"container {self._name} ended as soon as it was started")
        self._namespace = os.open(f"/proc/{first}/ns/mnt", os.O_RDONLY)
        self._descriptors.append(self._namespace)
        for name, _, value in (pair.partition("=") for pair in json.loads(pairs) or ()):
            self._environment[name] = value
        self._environment |= self._image_environment()

    def environment(self) -> dict[str, str]:
        """Return the image's environment, with variables that point launchers to gpuctl's agent.

        The run's variables override it. It is not from a login shell: Debian's /etc/profile would
        override the image's PATH.
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
        """Start the program in a new session, with the container's files; return its process.

        It starts in the folder GPUCTL_WORKDIR of `environment`, by default in its HOME.
        The program gets exactly `environment`, which never appears in process arguments or on a
        disk. `streams` are Popen's stdin, stdout and stderr: None, DEVNULL, PIPE or descriptors;
        they reach the program itself. The process ends with the program's status. Its `pid` is a
        process group on this machine: a signal to the group reaches the program and its children.
        Raises OSError if the program cannot be started.
        """
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
        """Remove the container with its files, also if it is not prepared; keep the image."""
        if self._descriptors:
            # If this fails, the container still ends once the pipe is closed.
            with contextlib.suppress(OSError):
                self._call("rm", "--force", self._name)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self._pipe.unlink(missing_ok=True)

    def _options(self) -> list[str]:
        """Return the options of `run`: always as root, and without the image's entrypoint."""
        options = ["--detach", "--rm", "--pull=never", "--stop-signal=KILL", f"--name={self._name}"]
        options += ["--no-healthcheck", "--user=0:0", "--entrypoint=bash"]
        options += ["--network=host", "--ipc=host", "--pid=host"]
        if self._devices.nvidia.exists() or any(map(_describes_gpus, self._devices.cdi)):
            by_name = self._runtime == "docker"
            options.append("--gpus=all" if by_name else "--device=nvidia.com/gpu=all")
        if self._devices.infiniband.exists():
            options.append(f"--device={self._devices.infiniband}")
        for path in (str(self._folder), *data_folders(Path("/proc/self/mounts").read_bytes())):
            options.append(f"--volume={path}:{path}")
        if self._image.privileged:
            options.append("--privileged")
        return [*options, *(f"--volume={volume}" for volume in self._volumes())]

    def _volumes(self) -> tuple[str, ...]:
        """Return the run's own volumes; make the folders that the node lacks: podman does not."""
        volumes = self._image.volumes
        for volume in volumes:
            Path(volume.partition(":")[0]).mkdir(parents=True, exist_ok=True)
        return volumes

    def _image_environment(self) -> dict[str, str]:
        """Return variables with the image's folder, and with what it would start, as bash."""
        answer = self._call("image", "inspect", "--format={{json .Config}}", self._image.id)
        config = json.loads(answer)
        return {
            # Builders write `/` for an image without a folder.
            "GPUCTL_IMAGE_FOLDER": (config.get("WorkingDir") or "").rstrip("/"),
            "GPUCTL_IMAGE_ENTRYPOINT": shlex.join(config.get("Entrypoint") or ()),
            "GPUCTL_IMAGE_COMMAND": shlex.join(config.get("Cmd") or ()),
        }

    def _call(self, *arguments: str) -> str:
        """Run a command of the runtime; return its output, or raise OSError with its last line."""
        # With INVOCATION_ID podman leaves its monitor in the service; the end of the worker's unit
        # would then kill the monitor before it has removed the container.
        environment = {k: v for k, v in os.environ.items() if k != "INVOCATION_ID"}
        program = self._runtime
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
            raise OSError("neither docker nor podman is installed") from None
        except subprocess.TimeoutExpired:
            message = f"`{program} {arguments[0]}` did not end within {START_S} s"
            raise OSError(message) from None
        if done.returncode != 0:
            reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
            raise OSError(f"`{program} {arguments[0]}` failed: {reason}")
        return done.stdout.strip()


def data_folders(mounts: bytes) -> list[str]:
    """Return the mount points of shared and scratch folders, from the text of /proc/self/mounts.

    These are all mount points except the root and those below the system's folders.
    """
    folders = set()
    for line in mounts.splitlines():
        octal = re.compile(rb"\\([0-7]{3})")  # proc(5) writes a space as \040
        path = os.fsdecode(octal.sub(lambda match: bytes([int(match[1], 8)]), line.split()[1]))
        top = path.split("/")[1]
        if top and top not in _SYSTEM and ":" not in path:  # --volume cannot have a colon in a path
            folders.add(path)
    return sorted(folders)


def _describes_gpus(folder: Path) -> bool:
    """Return whether a file of CDI in the folder names NVIDIA's GPUs."""
    with contextlib.suppress(OSError):  # an unreadable file counts as one without GPUs
        return any(
            stat.S_ISREG(file.stat().st_mode) and "nvidia.com/gpu" in file.read_text()
            for file in folder.iterdir()
        )
    return False


class Host:
    """The machine itself. It needs no preparation; the unit ends its processes."""

    def prepare(self) -> None:
        """Do nothing."""

    def environment(self) -> dict[str, str]:
        """Return the environment of a login on this machine."""
        return login_environment()

    def spawn(
        self, argv: list[str], environment: dict[str, str], **streams: Any
    ) -> subprocess.Popen[bytes]:
        """Start the program as a child of the worker, see Container."""
        return subprocess.Popen(
            argv,
            env=environment,
            cwd=environment.get("GPUCTL_WORKDIR") or environment.get("HOME", "/"),
            start_new_session=True,
            **streams,
        )

    def end(self) -> None:
        """Do nothing."""
