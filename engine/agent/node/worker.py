"""The worker: one node's part of a run. It starts the job's bash, sends its output, and ends it.

Threads send messages to one inbox: a reader of orders, one pump per output stream, a waiter for the
job; another thread writes events. Only the main thread decides, and it never blocks on I/O: a
worker without a supervisor ends its job even if its own output is stuck.
"""

from __future__ import annotations

import contextlib
import json
import queue
import shutil
import signal
import subprocess
import threading
import time
from io import RawIOBase
from pathlib import Path

from engine.agent.journal.locks import create_folder
from engine.agent.journal.redaction import Redaction
from engine.agent.journal.run_folders import TREE, mark_used, remove_old_runs
from engine.agent.journal.run_secrets_file import remove_handover
from engine.agent.link.event_stream import EventStream, Message
from engine.agent.link.heartbeat import HeartbeatClient
from engine.agent.metrics.sampler import Sampler
from engine.agent.node import nccl_json_files
from engine.agent.node.bash_entries import first_fault
from engine.agent.node.container import Container, Host
from engine.agent.node.examination import Examination, start_folder
from engine.agent.node.exec_server import Entrance
from engine.agent.node.job_notice import FILE, JobNotice, order_of
from engine.agent.node.login_environment import add_variables
from engine.agent.node.output import Log, pump
from engine.agent.node.process_group import ProcessGroup
from engine.agent.node.readiness import Probe, Ranks
from engine.agent.node.supervisor_link import Attachment
from engine.contract.codec import from_json
from engine.contract.names import ERROR_FILE
from engine.contract.node_plan import WorkOrder
from engine.contract.worker_events import (
    ClockSet,
    HeadSilent,
    NodeExamined,
    NodeExited,
    NodeFact,
    NodeNotPrepared,
    NodePrepared,
    NodeReady,
    NodeStarted,
    TableWritten,
)

HOSTFILE = "hostfile"
CHECKPOINTS = "GPUCTL_CHECKPOINT_DIR"
WORK = "work"
CANNOT_START, NOT_FOUND = 126, 127  # bash(1), EXIT STATUS
_GROUP_S = 0.1  # between two looks whether the job's process group has a process
DRAIN_S = 1.0  # time for output after the end of the job's bash
_STEPS = 10  # steps of the clock to report: something may set it again and again
_CHECK_S = 10  # for one command of the user
_MAINTENANCE_S = 60.0  # before the first question about scheduled events
_STOPS = ("stop", "leave", "head_silent", "supervisor_lost")
_IN_PIPES = 4 * 65536  # bytes in the job's two pipes and their readers at its end


def work(folder: Path) -> int:
    """Run or stop the node's job as the supervisor orders, and return the worker's exit status.

    The order is the first line on stdin. On return the job's process group is gone.
    """
    # Unbuffered: a thread that waits in a buffered stdin holds its lock, and this process could not
    # end.
    control = open(0, "rb", buffering=0)  # noqa: SIM115
    line = control.readline()
    if not line:
        return 1
    order = from_json(WorkOrder, json.loads(line))
    heartbeats = HeartbeatClient(order.heartbeats, order.node.rank)
    report = EventStream(open(1, "wb", buffering=0))  # noqa: SIM115  as long as this process
    worker = Worker(folder, order, control, report, heartbeats)
    signal.signal(signal.SIGTERM, lambda *_: worker.post({"do": "stop"}))
    return worker.run()


class Worker:
    """The worker of one node."""

    def __init__(
        self,
        folder: Path,
        order: WorkOrder,
        control: RawIOBase,
        report: EventStream,
        heartbeats: HeartbeatClient,
    ) -> None:
        self._folder, self._order = folder, order
        self._control, self._report = control, report
        self._heartbeats = heartbeats
        self._attachment = Attachment(
            folder, report, heartbeats, self.post, order.lost_supervisor_s
        )
        self._node = order.node
        rank = self._node.rank
        image = order.image
        self._place = Container(image, folder, rank) if image else Host()
        self._entrance = Entrance(folder, self._place, order.hosts, rank, order.grace_s)
        self._ranks = Ranks(folder, rank, report)
        self._sampler = Sampler(folder, report)
        self._notice = JobNotice(order.on_notice, folder, self._place, order.hidden)
        self._script = folder / f"job-{rank}.sh"
        # SimpleQueue: its put may be called from a signal handler.
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._job: ProcessGroup | None = None
        self._log: Log | None = None
        self._pumps: list[threading.Thread] = []
        self._steps = 0  # of this machine's clock
        self._is_alone = False  # no supervisor reads the events any more

    def post(self, message: Message) -> None:
        """Put a message into the inbox.

        start, notice, stop, exited; leave: the supervisor has given this node up; head_silent:
        heartbeats get no answer; supervisor_lost: no supervisor has come back. The order `examine`,
        because the job is silent, is carried out at once.
        """
        if message["do"] in ("leave", "head_silent", "supervisor_lost"):
            self._is_alone = True
        if message["do"] == "supervisor_lost":
            remove_handover(self._folder)  # on the head, where the supervisor was
        if message["do"] == "examine":
            threading.Thread(target=self._examine_ranks, daemon=True).start()
        else:
            self._inbox.put(message)

    def _examine_ranks(self) -> None:
        """Report what the job's processes wait for."""
        # Few runs hang.
        from engine.agent.node.rank_processes import examine  # noqa: PLC0415

        variables = self._node.environment
        self._report.offer(examine(variables["GPUCTL_RUN_ID"], variables["GPUCTL_NODE_RANK"]))

    def run(self) -> int:
        """Run the job; return the worker's own exit status, which is always 0."""
        self._heartbeats.follow(self._notice_silent_head, self._report_step)
        try:
            self._attachment.follow(self._control)
            environment = self._prepare()
            if environment is not None:
                self._attend(environment)
        finally:
            self._clear()
        # The report of the job's end is behind its output, which the supervisor may read slowly.
        self._report.close(lambda: not self._is_alone)
        self._attachment.close()
        return 0

    def _notice_silent_head(self) -> None:
        if self._attachment.is_connected:  # else the head lives, and restarts the supervisor
            self.post({"do": "head_silent"})

    def _report_step(self, seconds: float) -> None:
        self._steps += 1
        if self._steps <= _STEPS:
            self._report.send(ClockSet(self._node.rank, seconds, text=""))  # the head adds the text

    def _prepare(self) -> dict[str, str] | None:
        """Prepare the node and return the job's environment; None, with a report, on failure."""
        try:
            self._write_files()
            self._lay_out_code()
            self._place.prepare()
            environment = self._place.environment()
            # Python writes to a pipe in blocks: a job would look silent, and lose its last lines.
            environment.setdefault("PYTHONUNBUFFERED", "1")
            environment["TORCHELASTIC_ERROR_FILE"] = str(self._folder / ERROR_FILE)
            environment[FILE] = self._notice.file
            variables = self._node.environment
            own = ("GPUCTL_", "DSTACK_")  # which the run's own variables may refer to
            environment.update((k, v) for k, v in variables.items() if k.startswith(own))
            environment.update(self._order.secrets)
            add_variables(environment, variables)
            environment.update(self._order.secrets)
            self._notice.clear(environment)
            self._check_commands(environment)
            self._entrance.open(environment)
            self._ranks.open()
        except OSError as error:
            self._report.send(NodeNotPrepared(self._node.rank, str(error)))
            return None
        if not self._heartbeats.wait_for_answer():
            to = self._order.heartbeats
            address = f"UDP, {to.address}:{to.port}"
            reason = f"the head does not answer its heartbeats ({address}) within {to.answer_s:g} s"
            self._report.send(NodeNotPrepared(self._node.rank, reason))
            return None
        self._report.send(NodePrepared(self._node.rank))
        return environment

    def _attend(self, environment: dict[str, str]) -> None:
        """Run the job as the supervisor orders, to its end."""
        self._environment = environment
        if self._order.is_rented or self._order.is_spot:
            threading.Thread(target=self._watch_metadata, daemon=True).start()
        if self._wait_for({"start", "stop"}) == "start" and self._start(environment):
            ended_by = self._wait_for({"exited", "stop"})
            self._end(graceful=ended_by == "stop")

    def _watch_metadata(self) -> None:
        """Report AWS's notices to this node, and give them to its job."""
        if not self._order.is_spot:
            time.sleep(_MAINTENANCE_S)  # short jobs go without
        from engine.agent.node import interruption  # noqa: PLC0415  HTTP, for rented nodes alone

        def report(notice: interruption.Notice) -> None:
            self._report.send(notice)
            self.post(order_of(notice, self._node.name))

        metadata = interruption.Metadata(interruption.metadata_address())
        interruption.watch(metadata, self._node, self._order.is_spot, report)

    def _write_files(self) -> None:
        """Write the plan's files and the job's script, readable for root only."""
        remove_old_runs(self._folder)
        create_folder(self._folder, exist_ok=True)
        self._attachment.listen()
        mark_used(self._folder)
        Path(self._node.environment[CHECKPOINTS]).mkdir(parents=True, exist_ok=True)
        files = {**self._node.files, str(self._script): self._node.script}
        for path, text in files.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).touch(mode=0o600)
            Path(path).write_text(text, encoding="utf-8")

    def _check_commands(self, environment: dict[str, str]) -> None:
        """Raise OSError if the job's bash cannot read a command of the user."""
        plain = {k: v for k, v in environment.items() if k != "BASH_ENV"} | {"LC_ALL": "C"}

        def bash(arguments: list[str], text: str) -> str:
            process = self._place.spawn(
                ["bash", *arguments],
                plain,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            try:
                return process.communicate(text.encode(), _CHECK_S)[1].decode(errors="replace")
            finally:
                process.kill()  # if it takes too long

        try:
            fault = first_fault([self._node.script, *self._node.files.values()], bash)
        except (OSError, subprocess.SubprocessError):
            return  # the job's own start reports it
        if fault:
            raise OSError(fault)

    def _lay_out_code(self) -> None:
        """Create the job's working folder with the user's files, if the run has one."""
        code = self._order.code
        if code is None:
            return
        # Many workers start at once, and not each has code.
        from engine.agent.node.code_store import lay_out  # noqa: PLC0415

        work, part = self._folder / WORK, self._folder / f"{WORK}.part"
        if work.exists():  # from an earlier attempt, with what the job has left there
            return
        shutil.rmtree(part, ignore_errors=True)  # what is left is in no one's way
        part.mkdir(mode=0o755)
        tree = self._folder.parent / f"{TREE}{code.tree}"
        if code.tree:
            lay_out(tree, part)
        part.rename(work)

    def _clear(self) -> None:
        """Remove what was created for the job, except log, hostfile and working folder."""
        self._sampler.close()
        (self._folder / ERROR_FILE).unlink(missing_ok=True)  # the report of the job's end has it
        if self._log is not None:
            self._log.finish()
        self._entrance.close()
        self._ranks.close()
        self._place.end()
        for path in (*map(Path, self._node.files), self._script):
            if path.name != HOSTFILE:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it has checkpoints
            Path(self._node.environment[CHECKPOINTS]).rmdir()
        for path in self._folder.glob("*"):
            if path.is_fifo():  # created by the job's script
                path.unlink(missing_ok=True)
        mark_used(self._folder)

    def _wait_for(self, words: set[str]) -> str:
        """Wait for one of `words` and return it; without a supervisor it is `stop`."""
        while True:
            message = self._inbox.get()
            word = message["do"]
            if word == "notice":
                self._notice.give(message, self._environment, self._log)
            if word == "head_silent":
                silence = self._order.heartbeats.silence_s
                reason = f"has not heard the head for {silence:g} s"
                self._report.send(HeadSilent(reason))
            if word in _STOPS:
                return "stop"
            if word in words:
                return str(word)

    def _start(self, environment: dict[str, str]) -> bool:
        """Start the job; return False, with a report of its end, if it cannot be started."""
        self._examination = Examination(self._folder, start_folder(environment))
        try:
            job = self._place.spawn(
                ["bash", str(self._script)],
                environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except (OSError, ValueError) as error:  # ValueError: a name or a value with a zero byte
            self._report_unstarted(error, environment)
            return False
        self._job = group = ProcessGroup(job)
        self._report.send(NodeStarted(self._node.rank, job.pid))
        self._sampler.start()
        self._log = log = Log(self._folder, self._node.rank, self._report)
        assert job.stdout is not None
        assert job.stderr is not None
        for name, stream in (("stdout", job.stdout), ("stderr", job.stderr)):
            shown = (stream, name, log, Redaction(self._order.hidden))
            thread = threading.Thread(target=pump, args=shown, daemon=True)
            thread.start()
            self._pumps.append(thread)
        threading.Thread(target=self._wait_for_job, args=(group,), daemon=True).start()
        ready = self._order.ready
        if ready is None:
            self._report.send(NodeReady(self._node.rank))
        else:
            probe = Probe(
                ready, self._node.rank, self._place, environment, lambda: group.status is None
            )
            threading.Thread(target=probe.run, args=(self._report,), daemon=True).start()
        return True

    def _report_unstarted(self, error: OSError | ValueError, environment: dict[str, str]) -> None:
        """Report the end of a job that cannot be started, with the status that bash would give."""
        code, text = start_failure(error, environment)
        redaction = Redaction(self._order.hidden)
        facts = (NodeFact("start", redaction.feed(text) + redaction.rest()),)
        self._report.send(NodeExamined(self._node.rank, code, True, facts))
        self._report.send(NodeExited(self._node.rank, code, signal=None))

    def _wait_for_job(self, job: ProcessGroup) -> None:
        job.wait()
        self.post({"do": "exited"})

    def _end(self, graceful: bool) -> None:
        """End the job's process group and the commands that entered the run; report the end.

        Processes that have left the group end with the unit, when this process ends.
        """
        assert self._job is not None
        is_own_end = not graceful or self._job.status is not None
        deadline = time.monotonic() + (self._order.grace_s if graceful else DRAIN_S)
        if graceful:
            # SIGCONT, as systemd does (systemd.kill(5)): a stopped process would not end.
            for polite in (signal.SIGTERM, signal.SIGCONT):
                self._job.signal(polite)
                self._entrance.signal(polite)
            if self._job.status is None:
                self._wait_until(deadline)
            self._entrance.wait(deadline - time.monotonic())
        self._wait_for_notice(deadline if graceful else float("inf"))
        # The streams end with the group's last process, unless one that has left the group has them
        # open: that one got no signal, and ends with the unit.
        for thread in self._pumps:
            while thread.is_alive() and time.monotonic() < deadline and self._job.has_processes():
                thread.join(_GROUP_S)
        self._job.signal(signal.SIGKILL)
        self._entrance.signal(signal.SIGKILL)
        code = self._job.release()
        self._drain()
        self._ranks.drain()
        for case, document in nccl_json_files.collect(self._folder):
            self._report.send(TableWritten(self._node.rank, document, case))
        number = -code if code < 0 else None
        code = code if number is None else 128 + number
        self._examine(code, is_own_end)
        self._report.send(NodeExited(self._node.rank, code, signal=number))

    def _wait_for_notice(self, deadline: float) -> None:
        """Wait for the command of a notice, at most until the deadline; then kill it.

        After the job's own end it has the time until its own deadline, unless the run stops.
        """
        while self._notice.is_being_given and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):  # the command runs on
                if self._inbox.get(timeout=_GROUP_S)["do"] in _STOPS:
                    deadline = min(deadline, time.monotonic() + self._order.grace_s)
        self._notice.end()

    def _examine(self, code: int, is_own_end: bool) -> None:
        """Report what the node shows of a failed job, or of any job if something is wrong."""
        facts = self._examination.facts(list(self._order.hidden))
        if facts or (is_own_end and code != 0):
            self._report.send(NodeExamined(self._node.rank, code, is_own_end, facts))

    def _drain(self) -> None:
        """Wait until all output of the job is queued, or until there is none for DRAIN_S.

        A process that has left the job's group may keep a stream open for ever.
        """
        assert self._log is not None
        most = self._log.size + _IN_PIPES
        for thread in self._pumps:
            before = -1
            while thread.is_alive() and self._log.size < most and not self._is_alone:
                if self._log.size == before and not self._report.is_full:
                    break
                before = self._log.size
                thread.join(DRAIN_S)

    def _wait_until(self, deadline: float) -> None:
        """Wait until the job's bash has ended, at most until the deadline."""
        while True:
            left = deadline - time.monotonic()
            try:
                if left <= 0 or self._inbox.get(timeout=left)["do"] == "exited":
                    return
            except queue.Empty:
                return


def start_failure(error: OSError | ValueError, environment: dict[str, str]) -> tuple[int, str]:
    """Return why a job with this environment cannot be started: bash's exit status, and a text.

    127 means that the program was not found, 126 that it could not be started (bash(1)).
    """
    if not isinstance(error, OSError):
        return CANNOT_START, f"bash cannot be started: {error}"
    if error.filename == "bash" and isinstance(error, FileNotFoundError):
        path = environment.get("PATH", "")
        text = f"bash cannot be started: no folder of PATH has it (PATH is {path})"
        if "$" in path:
            text += "; no shell reads `env`: write ${PATH} for the value on the node"
        return NOT_FOUND, text
    if error.filename == str(start_folder(environment)):
        return CANNOT_START, f"the job cannot start in {error.filename}: {error.strerror}"
    return CANNOT_START, f"bash cannot be started: {error.strerror}"
