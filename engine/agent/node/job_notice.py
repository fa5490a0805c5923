"""A node's notice to its job that it must end soon: a file, a signal to the ranks, a command.

Launchers do not pass signals on as a job needs it. torchrun has handlers for SIGTERM, SIGINT,
SIGHUP and SIGQUIT alone (torch/distributed/elastic/multiprocessing/api.py of PyTorch), DeepSpeed's
for SIGINT (deepspeed/launcher/runner.py), horovodrun's processes for none
(horovod/runner/common/util/safe_shell_exec.py; all read 2026-11-29): they die of SIGUSR1. Open
MPI's mpirun sends SIGUSR1 and SIGUSR2 to all ranks (https://github.com/open-mpi/ompi/pull/2725,
2026-11-29), and those without a handler die of it. So each node signals its own ranks, and those
alone that have a handler.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Set
from pathlib import Path

from engine.agent.journal.redaction import Redaction
from engine.agent.link.event_stream import Message
from engine.agent.node.container import Container, Host
from engine.agent.node.job_processes import RANK_VARIABLES, JobProcess, job_processes
from engine.agent.node.output import Log, pump
from engine.agent.node.process_group import ProcessGroup
from engine.contract.node_plan import NoticePlan
from engine.contract.worker_events import NodeInterrupted, NoticeGiven

FILE = "GPUCTL_NOTICE_FILE"
SPOT = "spot-interruption"
LEASE = "lease"
_PASS_ON = ("mpirun", "mpiexec", "orte", "prte", "prun", "hydra_")
"""How the names of processes begin that would send the signal to ranks without a handler too."""
_WRITE_S = 30  # for the file: it may be in a shared file system that is slow
_WRITE = 'mkdir -p "${0%/*}" && cat > "$0.part" && mv -f "$0.part" "$0"'


def notice_order(kind: str, deadline: float | None, node: str | None) -> Message:
    """Return the order to give the job notice: `deadline` in seconds since the epoch, if known.

    `node` is the one that the notice is about, None for all nodes.
    """
    return {"do": "notice", "kind": kind, "deadline": deadline, "node": node}


def order_of(notice: NodeInterrupted | NoticeGiven, node: str | None) -> Message:
    """Return the order to give the job this notice; an interruption in a form that is not AWS's
    has no deadline.
    """
    if isinstance(notice, NoticeGiven):
        return notice_order(notice.notice, notice.deadline, node)
    try:
        end = epoch(notice.at, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        end = None
    return notice_order(SPOT, end, node)


def epoch(text: str, form: str) -> float:
    """Return the time in UTC, in the form of strptime, in seconds since the epoch."""
    return float(calendar.timegm(time.strptime(text, form)))


class JobNotice:
    """The notice of one node's job, in `place`; `hidden` are values that no output may have."""

    def __init__(
        self,
        plan: NoticePlan,
        folder: Path,
        place: Container | Host,
        hidden: tuple[str, ...],
    ) -> None:
        self._plan, self._place, self._hidden = plan, place, hidden
        self.file = plan.file or str(folder / "notice.json")
        self._deadline = float("inf")  # of the most urgent notice
        self._is_given = False
        self._writing = threading.Lock()
        self._commands: list[ProcessGroup] = []
        self._threads: list[threading.Thread] = []

    def clear(self, environment: dict[str, str]) -> None:
        """Remove the file of an earlier attempt. Raises OSError if no process can be started."""
        if self._plan.file:  # it may be the container's own
            self._bash('rm -f "$0"', "", environment)
        else:
            Path(self.file).unlink(missing_ok=True)

    def give(self, notice: Message, environment: dict[str, str], log: Log | None) -> None:
        """Give the notice, in a thread, unless an earlier one was as urgent.

        A more urgent one that comes before the file is written takes its place. Without a log the
        job does not run yet: it will find the file.
        """
        deadline = notice["deadline"] or float("inf")
        if self._is_given and deadline >= self._deadline:
            return
        self._is_given, self._deadline = True, deadline
        arguments = ({key: notice[key] for key in ("kind", "deadline", "node")}, environment, log)
        thread = threading.Thread(target=self._give, args=(deadline, *arguments), daemon=True)
        self._threads.append(thread)
        thread.start()

    @property
    def is_being_given(self) -> bool:
        """Return whether the command of a notice runs."""
        return any(thread.is_alive() for thread in self._threads)

    def end(self) -> None:
        """Kill the commands that run."""
        for group in self._commands:
            group.signal(signal.SIGKILL)
        for thread in self._threads:
            thread.join(1.0)  # one that has left the group may keep its output open

    def _give(
        self, deadline: float, notice: Message, environment: dict[str, str], log: Log | None
    ) -> None:
        plan = self._plan
        with self._writing:  # one after another: the last one that writes is the most urgent
            if deadline > self._deadline:
                return
            try:
                failure = self._bash(_WRITE, json.dumps(notice) + "\n", environment)
            except (OSError, subprocess.SubprocessError) as error:
                failure = str(error)
        if log is None:
            return
        if failure:
            log.add("stderr", f"gpuctl: {FILE} cannot be written: {failure}", ends_line=True)
        if plan.signal:
            number = signal.Signals[f"SIG{plan.signal}"]
            for pid in ranks_with_handler({FILE: self.file}, number):
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.kill(pid, number)
        if plan.command:
            variables = {
                "GPUCTL_NOTICE_KIND": notice["kind"],
                "GPUCTL_NOTICE_DEADLINE": str(notice["deadline"] or ""),
            }
            self._run(plan.command, {**environment, **variables}, log, notice["deadline"])

    def _bash(self, script: str, text: str, environment: dict[str, str]) -> str:
        """Run the script about the file where the job sees it; return why it failed, or nothing."""
        process = self._place.spawn(
            ["bash", "-c", script, self.file],
            {k: v for k, v in environment.items() if k != "BASH_ENV"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            reason = process.communicate(text.encode(), _WRITE_S)[1].decode(errors="replace")
        finally:
            process.kill()
        return (reason.strip() or "no reason given") if process.returncode else ""

    def _run(
        self, command: str, environment: dict[str, str], log: Log, deadline: float | None
    ) -> None:
        """Run the command to its end, at most until the deadline; its output is the job's."""
        try:
            process = self._place.spawn(
                ["bash", "-c", command],
                environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            log.add("stderr", f"gpuctl: on_notice.command: {error}", ends_line=True)
            return
        group, left = ProcessGroup(process), None
        self._commands.append(group)
        killing = None
        if deadline is not None:
            left = max(0.0, deadline - time.time())
            killing = threading.Timer(left, group.signal, (signal.SIGKILL,))
            killing.daemon = True
            killing.start()
        assert process.stdout is not None
        pump(process.stdout, "stdout", log, Redaction(self._hidden))
        code = group.release()
        if killing is not None:
            killing.cancel()
        if code:
            text = "was killed" if code == -signal.SIGKILL else f"ended with {code}"
            log.add("stderr", f"gpuctl: on_notice.command {text}", ends_line=True)


def ranks_with_handler(marks: Mapping[str, str], number: int) -> list[int]:
    """Return the processes with a handler for the signal that gets one: those of the job's ranks.

    A process of the job has the variables `marks` in its environment. In each rank it is the first
    process with a handler; its children, which may have it from a fork, get no signal.
    """
    processes = {process.pid: process for process in job_processes(marks)}
    with_handler = {pid for pid, each in processes.items() if _has_handler(each, number)}
    return [pid for pid in sorted(with_handler) if not _is_below(processes, with_handler, pid)]


def _has_handler(process: JobProcess, number: int) -> bool:
    """Return whether the process has a handler that does not pass the signal on, by SigCgt."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(errors="replace")
    except OSError:  # it has ended
        return False
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    caught = int(fields["SigCgt"], 16) >> (number - 1) & 1
    return bool(caught) and not process.command.startswith(_PASS_ON)


def _is_below(processes: Mapping[int, JobProcess], with_handler: Set[int], pid: int) -> bool:
    """Return whether a process of the same rank above this one has a handler."""
    rank = _rank(processes[pid])
    above = processes.get(processes[pid].parent)
    while above is not None and _rank(above) == rank:
        if above.pid in with_handler:
            return True
        above = processes.get(above.parent)
    return False


def _rank(process: JobProcess) -> dict[str, str]:
    return {name: text for name, text in process.variables.items() if name in RANK_VARIABLES}
