"""The place where a node runs the processes of a run, and its plain form, the machine itself.

`Place` is the worker's interface; `container.Container` is the other form. Every spawned process
must be in the worker's unit (its cgroup), so that it ends with it.
"""

from __future__ import annotations

import subprocess
from typing import Any, Protocol

from engine.agent.node.login_environment import login_environment


class Place(Protocol):
    """A place for processes: the machine, or a container. Thread-safe once it is prepared."""

    def prepare(self) -> None:
        """Prepare the place for `spawn`. Raises OSError with one line for the user on failure.

        Called once, before the node is reported as prepared.
        """

    def environment(self) -> dict[str, str]:
        """Return the environment of a login, with PATH and HOME; the run's overrides it."""

    def spawn(
        self, argv: list[str], environment: dict[str, str], **streams: Any
    ) -> subprocess.Popen[bytes]:
        """Start the program in a new session and return its process.

        It starts in the folder GPUCTL_WORKDIR of `environment`, by default in its HOME.
        The program gets exactly `environment`, which never appears in process arguments or on a
        disk. `streams` are Popen's stdin, stdout and stderr: None, DEVNULL, PIPE or descriptors;
        they reach the program itself. The process ends with the program's status. Its `pid` is a
        process group on this machine: a signal to the group reaches the program and its children.
        Raises OSError if the program cannot be started.
        """

    def end(self) -> None:
        """Remove the place and end its processes; called once, also if it is not prepared."""


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
        """Start the program as a child of the worker."""
        return subprocess.Popen(
            argv,
            env=environment,
            cwd=environment.get("GPUCTL_WORKDIR") or environment.get("HOME", "/"),
            start_new_session=True,
            **streams,
        )

    def end(self) -> None:
        """Do nothing."""
