"""Where a node runs what belongs to a run: on the machine itself.

`Place` is what the worker asks of it; `container.Container` is the other one. Everything that is
spawned has to be in the worker's unit (its cgroup), so that it ends with it.
"""

from __future__ import annotations

import subprocess
from typing import Any, Protocol

from engine.agent.environment import login_environment


class Place(Protocol):
    """The machine, or a container on it; used from several threads once it is prepared."""

    def prepare(self) -> None:
        """Things can be spawned. OSError, whose text is one line for the user, where they cannot.

        Called once, before the supervisor hears that this node is prepared.
        """

    def environment(self) -> dict[str, str]:
        """What a login finds there, with PATH and HOME; the run's own is laid over it."""

    def spawn(
        self, argv: list[str], environment: dict[str, str], **streams: Any
    ) -> subprocess.Popen[bytes]:
        """The program runs there in a session of its own, in the home that `environment` names.

        It has exactly `environment`, which stands in nobody's arguments and on no disk. `streams`
        are Popen's stdin, stdout and stderr: None, DEVNULL, PIPE or descriptors; they reach the
        program itself. The returned process ends with the program's status, and its `pid` is a
        process group on this machine: a signal to the group reaches the program and what it
        started. OSError where it cannot be started.
        """

    def end(self) -> None:
        """Nothing is left of the place, nor of what runs in it; called once, also unprepared."""


class Host:
    """The machine itself: nothing to prepare, and the unit ends what is left."""

    def prepare(self) -> None:
        """Nothing is to be done."""

    def environment(self) -> dict[str, str]:
        """A login's on this machine."""
        return login_environment()

    def spawn(
        self, argv: list[str], environment: dict[str, str], **streams: Any
    ) -> subprocess.Popen[bytes]:
        """The program is a child of the worker."""
        return subprocess.Popen(
            argv,
            env=environment,
            cwd=environment.get("HOME", "/"),
            start_new_session=True,
            **streams,
        )

    def end(self) -> None:
        """Nothing is to be done."""
