"""One node's part of a run: starts the job's bash, passes its output on, ends it.

Threads around one inbox: a reader of control lines, one pump per output stream, a waiter for the
job, a writer of events. Only the main thread decides, and nothing that blocks is in its way: a
worker whose supervisor is gone ends its job even if its own output is stuck.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from io import RawIOBase
from pathlib import Path

from engine.agent.environment import login_environment
from engine.agent.interruption import Metadata, watch
from engine.agent.output import Log, pump
from engine.agent.readiness import Probe
from engine.agent.report import Message, Report

DRAIN_S = 1.0  # for output that outlives the job's bash


def work(folder: Path) -> int:
    """The node's job has run, or was stopped, and its process group is gone."""
    # Unbuffered: the lock of a buffered stdin, held by a waiting reader, would stand in the way of
    # this process's end.
    control = open(0, "rb", buffering=0)  # noqa: SIM115
    line = control.readline()
    if not line:
        return 1
    worker = Worker(folder, json.loads(line), control, Report(sys.stdout.buffer))
    signal.signal(signal.SIGTERM, lambda *_: worker.tell({"do": "stop"}))
    return worker.run()


class Worker:
    """`order` has the node's plan, its readiness probe or None, the grace and the silence.

    `metadata` in it is where a spot instance learns that AWS takes it back, None for another.
    """

    def __init__(self, folder: Path, order: Message, control: RawIOBase, report: Report) -> None:
        self._folder, self._order = folder, order
        self._control, self._report = control, report
        self._node = order["node"]
        # SimpleQueue: its put may be called from a signal handler.
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._job: subprocess.Popen[bytes] | None = None
        self._pumps: list[threading.Thread] = []

    def tell(self, message: Message) -> None:
        """The message is in the inbox: start, stop, heartbeat, exited, lost."""
        self._inbox.put(message)

    def run(self) -> int:
        """The exit status of the worker itself: 0, whatever the job did."""
        script = self._write_files()
        environment = login_environment()
        environment.update(self._node["environment"])
        self._report.send("prepared")
        threading.Thread(target=self._listen, daemon=True).start()
        if self._order["metadata"] is not None:
            watched = (Metadata(self._order["metadata"]), self._report)
            threading.Thread(target=watch, args=watched, daemon=True).start()
        try:
            if self._await({"start", "stop"}) == "start":
                self._start(script, environment)
                ended_by = self._await({"exited", "stop"})
                self._end(graceful=ended_by == "stop")
        finally:
            script.unlink()
        self._report.close()
        return 0

    def _write_files(self) -> Path:
        """The plan's files and the job's script are on the node; the script for root's eyes."""
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        for path, text in self._node["files"].items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
        script = self._folder / f"job-{self._node['rank']}.sh"
        script.touch(mode=0o600)
        script.write_text(self._node["script"], encoding="utf-8")
        return script

    def _listen(self) -> None:
        for line in self._control:
            self.tell(json.loads(line))
        self.tell({"do": "stop"})  # the supervisor is gone

    def _await(self, words: set[str]) -> str:
        """The first of `words` that is told; silence for too long counts as `stop`."""
        while True:
            try:
                word = self._inbox.get(timeout=self._order["silence_s"])["do"]
            except queue.Empty:
                return "stop"
            if word in words:
                return str(word)

    def _start(self, script: Path, environment: dict[str, str]) -> None:
        job = subprocess.Popen(
            ["bash", str(script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=environment.get("HOME", "/"),
            start_new_session=True,
        )
        self._job = job
        self._report.send("node_started", pid=job.pid)
        log = Log(self._folder / f"rank-{self._node['rank']}.log", self._report)
        assert job.stdout is not None
        assert job.stderr is not None
        for name, stream in (("stdout", job.stdout), ("stderr", job.stderr)):
            thread = threading.Thread(target=pump, args=(stream, name, log), daemon=True)
            thread.start()
            self._pumps.append(thread)
        threading.Thread(target=self._wait_for_job, args=(job,), daemon=True).start()
        if self._order["ready"] is None:
            self._report.send("node_ready")
        else:
            probe = Probe(self._order["ready"], environment, lambda: job.poll() is None)
            threading.Thread(target=probe.run, args=(self._report,), daemon=True).start()

    def _wait_for_job(self, job: subprocess.Popen[bytes]) -> None:
        job.wait()
        self.tell({"do": "exited"})

    def _end(self, graceful: bool) -> None:
        """The job's process group is gone and its end reported.

        What has left the group is reaped by the unit when this process ends.
        """
        assert self._job is not None
        deadline = time.monotonic() + (self._order["grace_s"] if graceful else DRAIN_S)
        if graceful:
            self._signal(signal.SIGTERM)
            if self._job.poll() is None:
                self._wait_until(deadline)
        for thread in self._pumps:  # their streams end when the last of the group has ended
            thread.join(max(0.0, deadline - time.monotonic()))
        self._signal(signal.SIGKILL)
        code = self._job.wait()
        for thread in self._pumps:
            thread.join(DRAIN_S)
        if code < 0:
            self._report.send("node_exited", exit_code=128 - code, signal=-code)
        else:
            self._report.send("node_exited", exit_code=code, signal=None)

    def _wait_until(self, deadline: float) -> None:
        """Returns when the job's bash has ended, or at the deadline."""
        while True:
            left = deadline - time.monotonic()
            try:
                if left <= 0 or self._inbox.get(timeout=left)["do"] == "exited":
                    return
            except queue.Empty:
                return

    def _signal(self, number: int) -> None:
        assert self._job is not None
        with contextlib.suppress(ProcessLookupError):  # the group is empty
            os.killpg(self._job.pid, number)
