"""Units of processes, by name: systemd's, or gpuctl's own ones where systemd cannot be used.

A unit outlives the login that started it, and no two of one name run at a time. When its main
process ends, all processes that it has started end with it, also those in other sessions.
In containers there is no systemd, and a user who is not root may not ask it. Then a process of the
agent keeps the unit: the kernel makes it the parent of all that lose theirs below it
(PR_SET_CHILD_SUBREAPER, https://man7.org/linux/man-pages/man2/PR_SET_CHILD_SUBREAPER.2const.html,
2026-11-29). Unlike systemd it limits no processor time, and if it is killed the unit goes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.agent.journal.locks import is_held, take
from engine.agent.journal.memory_folder import (
    MEMORY_VARIABLE,
    make_memory_folder,
    memory_folder,
)

STOP_GRACE_S = 10
UNIT_KILLED = 254
"""The exit status of a unit's shell command if a signal ended the main process."""
OPEN_FILES = 65536
"""For the sockets of many ranks, and three pipes per node."""
CPU_SHARE = "CPUWeight=100"
"""The property that makes the kernel share a node's processors between units, and not between
processes: on the head a job leaves the supervisors of other runs their part. 100 is the default
weight; systemd enables the CPU controller where a unit sets one ("Enabling and disabling
controllers", https://freedesktop.org/software/systemd/man/252/systemd.resource-control.html,
2026-11-23)."""
_SIGNAL_ENDED = 255  # EXIT_EXCEPTION of systemd-run(1)
_EXISTS = 1
_RESTART_S = 1.0
_AGAIN_S = 0.1
_PR_SET_CHILD_SUBREAPER = 36
BY_SYSTEMD = f'[ -d /run/systemd/system ] && [ "$(id -u)" = 0 ] && [ -z "${{{MEMORY_VARIABLE}-}}" ]'
"""The question of `has_systemd`, for a shell."""


@dataclass(frozen=True)
class Agent:
    """The agent on a node: its Python, and the path of its program."""

    python: str
    program: str

    def words(self, command: str, *arguments: str) -> list[str]:
        """Return the words of one of its commands."""
        return [self.python, "-IS", self.program, command, *arguments]

    def call(self, command: str, *arguments: str) -> str:
        """Return the command for a shell."""
        return shlex.join(self.words(command, *arguments))


STAYS_UP = f'{{ ! {{ {BY_SYSTEMD}; }} || [ "$(systemctl is-system-running)" != stopping ]; }}'
"""The question of a shell whether the machine is not about to shut down, as far as it knows."""


def unit_command(name: str, agent: Agent, words: Sequence[str], properties: Sequence[str]) -> str:
    """Return the shell command that runs the words as a unit, passes pipes through, and waits.

    It ends with the exit status of the main process, or with UNIT_KILLED: systemd-run ends with
    255 if a signal ended it, and so does ssh if its connection broke. A job may end systemd-run
    (`pkill -f python`): then it waits for the unit, which has the pipes.
    """
    options = [f"--property={text}" for text in properties]
    systemd = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", f"--unit={name}"]
    ours = agent.call("unit", name, *words)
    state = f"systemctl is-active {name} | grep -qxE '(de)?activating|active'"
    return (
        # The shell's own line about a process that was killed is not the worker's.
        f"{{ if {BY_SYSTEMD}; then"
        f" {{ {shlex.join([*systemd, *options, *words])} 2>&3 3>&-; code=$?; }} 3>&2 2>/dev/null;"
        f" while [ $code -gt 128 ] && {state}; do sleep {_AGAIN_S}; done;"
        f" else {ours}; code=$?; fi;"
        f" test $code != {_SIGNAL_ENDED} || code={UNIT_KILLED}; exit $code; }}"
    )


def end_command(name: str, agent: Agent) -> str:
    """Return the shell command that ends the unit, and waits until its last process has ended."""
    return (
        f"if {BY_SYSTEMD}; then systemctl stop --quiet {name} 2> /dev/null;"
        f" else {agent.call('end', name)}; fi"
    )


def idle_command(name: str, agent: Agent) -> str:
    """Return the shell command that succeeds if no unit runs whose name begins with `name`.

    It fails on a machine that shuts down.
    """
    return (
        f"{STAYS_UP} && if {BY_SYSTEMD}; then ! systemctl is-active --quiet '{name}*.service';"
        f" else {agent.call('idle', name)}; fi"
    )


def unit(name: Path, *words: str) -> int:
    """Run the words as a unit, and wait; return as systemd-run does. The unit outlives this."""
    _, status = os.waitpid(_fork(str(name), words), 0)
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else _SIGNAL_ENDED


@dataclass(frozen=True)
class Restart:
    """A unit whose main process is started again when it fails, except after these statuses.

    SIGTERM goes to the main process alone, which then has `stop_s` to end.
    """

    never_after: tuple[int, ...]
    stop_s: float


def start_until(file: Path, name: str, words: Sequence[str], restart: Restart) -> int:
    """Start the words as a unit, and wait until they have made `file`; return 0.

    Return their exit status if they end before.
    """
    keeper = _fork(name, words, restart)
    while not file.exists():
        ended, status = os.waitpid(keeper, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_AGAIN_S)
    return 0


def idle(name: Path) -> int:
    """Return 0 if no unit of gpuctl's own runs whose name begins with `name`, else 1."""
    return int(any(_keepers(name)))


def end(name: Path) -> int:
    """Stop gpuctl's own units whose names begin with `name`, and wait for their last process."""
    for file in _keepers(name):
        # It may have ended since the question, or not have written its id yet.
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(file.read_text()), signal.SIGTERM)
    deadline = time.monotonic() + 2 * STOP_GRACE_S
    while idle(name) != 0 and time.monotonic() < deadline:
        time.sleep(_AGAIN_S)
    return 0


def _keepers(name: Path) -> Iterator[Path]:
    for file in memory_folder().glob(f"{name}*"):
        if is_held(file):
            yield file


def _fork(name: str, words: Sequence[str], restart: Restart | None = None) -> int:
    """Fork the process that keeps the unit, and return its id."""
    child = os.fork()
    if child:
        return child
    try:
        os._exit(_Keeper(name, words, restart).run())
    finally:  # after an error, which Python prints
        os._exit(_EXISTS)


class _Keeper:
    """The process that keeps a unit, from the main process's start to the last one's end."""

    def __init__(self, name: str, words: Sequence[str], restart: Restart | None) -> None:
        self._name, self._words, self._restart = name, words, restart
        self._is_ending = False

    def run(self) -> int:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        file = make_memory_folder() / self._name
        try:
            take(file)
        except BlockingIOError:
            sys.stderr.write(f"unit {self._name} runs already\n")
            return _EXISTS
        file.write_text(str(os.getpid()))
        _raise_limits()
        if self._restart is not None:
            _let_go_of_pipes()
        main = subprocess.Popen(self._words)
        signal.signal(signal.SIGTERM, lambda *_: self._stop(main.pid))
        signal.signal(signal.SIGALRM, lambda *_: _signal_all(signal.SIGKILL))
        if self._restart is None:
            _let_go_of_pipes()
        result = 0
        while True:
            try:
                pid, status = os.wait()
            except ChildProcessError:  # the last one has ended
                return result
            if pid != main.pid:
                continue
            result = os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else _SIGNAL_ENDED
            if self._is_wanted_after(result):
                main = subprocess.Popen(self._words)
            else:
                self._end_all()

    def _is_wanted_after(self, result: int) -> bool:
        """Return whether the main process has to be started again, after a pause."""
        if self._restart is None or result in (0, *self._restart.never_after):
            return False
        time.sleep(_RESTART_S)
        return not self._is_ending

    def _stop(self, main: int) -> None:
        self._is_ending = True
        if self._restart is None:
            self._end_all()
            return
        signal.setitimer(signal.ITIMER_REAL, self._restart.stop_s, _AGAIN_S)
        with contextlib.suppress(ProcessLookupError):  # it has ended, and is not started again
            os.kill(main, signal.SIGTERM)

    def _end_all(self) -> None:
        """Ask all processes of the unit to end, and kill them after the grace."""
        # SIGCONT, as systemd does (systemd.kill(5)): a stopped process would not end.
        _signal_all(signal.SIGTERM)
        _signal_all(signal.SIGCONT)
        signal.setitimer(signal.ITIMER_REAL, STOP_GRACE_S, _AGAIN_S)


def _raise_limits() -> None:
    """Raise the limits of open files, and of memory that RDMA pins, as far as this user may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = most != resource.RLIM_INFINITY and most < OPEN_FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (most if few else OPEN_FILES, most))
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY,) * 2)
    except (ValueError, OSError):  # not without CAP_SYS_RESOURCE
        _, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, most))


def _let_go_of_pipes() -> None:
    """Let the pipes be the main process's alone: their other end waits for their end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)


def _signal_all(number: int) -> None:
    """Send the signal to all processes below this one."""
    for pid in _below(os.getpid()):
        # It has ended, or is another user's, as `sudo` is: the keeper itself must go on.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _below(parent: int) -> list[int]:
    """Return the ids of all processes below the parent, from /proc/PID/stat: proc(5)."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            above = stat.read_text(errors="replace").rpartition(")")[2].split()[1]
            children.setdefault(int(above), []).append(int(stat.parent.name))
    below, new = [], [parent]
    while new:
        new = [pid for above in new for pid in children.get(above, ())]
        below += new
    return below
