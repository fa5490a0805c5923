"""A node's part of a step: it starts the tasks, sends their output, and passes signals on."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from typing import Any

from engine.agent.slurm import frames
from engine.agent.slurm.frames import Frame, FrameWriter, read_frame

_CHUNK = 65536
_TASK = 'SLURM_TASK_PID=$$; export SLURM_TASK_PID; exec "$@"'
_OF_NODE = ("GPUCTL_NODE_", "DSTACK_NODE_")
"""The beginnings of variables that each node has for itself, except for the list of nodes."""
_DRAIN_S = 2.0  # for output of processes that outlive their task
_KILL_S = 30.0  # KillWait of slurm.conf(5)


def step(_: list[str]) -> int:
    """Run the tasks that the first frame on stdin describes; return 0."""
    frame = read_frame(0)
    if frame is None or frame.kind != frames.SPEC:
        return 1
    host = TaskHost(json.loads(frame.data), FrameWriter(os.dup(1)))
    os.dup2(2, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda signum, _: host.signal(signum))
    host.run()
    return 0


class TaskHost:
    """The tasks of a step on this node.

    `spec` has `folder`, `environment`, and `tasks`: the number, command and variables of each.
    With `is_bare` the node's environment counts, without what
    `travelled` with the job, else that of srun.
    """

    def __init__(self, spec: dict[str, Any], writer: FrameWriter) -> None:
        self._spec, self._writer = spec, writer
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._inputs: queue.SimpleQueue[Frame] = queue.SimpleQueue()

    def run(self) -> None:
        """Start the tasks, attend to them until all have ended, then end what they left."""
        waiters = []
        for task in self._spec["tasks"]:
            waiter = self._start(int(task["number"]), task["environment"])
            if waiter is not None:
                waiters.append(waiter)
        for serve in (self._read_control, self._feed):
            threading.Thread(target=serve, daemon=True).start()
        for waiter in waiters:
            waiter.join()
        self.signal(signal.SIGKILL)

    def signal(self, number: int, task: int = frames.EVERY) -> None:
        """Send the signal to the process groups of the tasks."""
        with self._lock:
            processes = dict(self._processes)
        for own, process in processes.items():
            if task in (frames.EVERY, own):
                with contextlib.suppress(OSError):  # the task has ended
                    os.killpg(process.pid, number)

    def _start(self, number: int, own: dict[str, str]) -> threading.Thread | None:
        given: dict[str, str] = self._spec["environment"]
        if self._spec["is_bare"]:
            plain = {k: v for k, v in os.environ.items() if k not in self._spec["travelled"]}
            environment = {**plain, **given, **own}
        else:
            node = {k: v for k, v in os.environ.items() if k.startswith(_OF_NODE)}
            environment = {**given, **node, **own}
        command = next(t["command"] for t in self._spec["tasks"] if t["number"] == number)
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _TASK, "sh", *command],
                env=environment,
                cwd=_folder(self._spec["folder"]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._writer.send(frames.FAULT, number, f"{error}".encode())
            self._writer.send(frames.EXITED, number, b"127")
            return None
        with self._lock:
            self._processes[number] = process
        waiter = threading.Thread(target=self._wait, args=(number, process))
        waiter.start()
        return waiter

    def _wait(self, number: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        pumps = [
            threading.Thread(target=self._pump, args=(number, kind, stream.fileno()), daemon=True)
            for kind, stream in ((frames.STDOUT, process.stdout), (frames.STDERR, process.stderr))
        ]
        for pump in pumps:
            pump.start()
        status = process.wait()
        for pump in pumps:
            pump.join(_DRAIN_S)
        self._writer.send(frames.EXITED, number, str(status).encode())

    def _pump(self, number: int, kind: bytes, descriptor: int) -> None:
        """Send whole lines, parts of a longer one, and at the end what has no line end."""
        is_unbuffered = self._spec["is_unbuffered"]
        kept = b""
        while True:
            try:
                data = os.read(descriptor, _CHUNK)
            except OSError:
                data = b""
            kept += data
            end = kept.rfind(b"\n") + 1
            if not data or is_unbuffered or (end == 0 and len(kept) >= _CHUNK):
                end = len(kept)
            if end:
                self._writer.send(kind, number, kept[:end])
                kept = kept[end:]
            if not data:
                return

    def _read_control(self) -> None:
        """Do what `srun` says; at its end, end the tasks."""
        while (frame := read_frame(0)) is not None:
            if frame.kind == frames.SIGNAL:
                self.signal(int(frame.data), frame.task)
            elif frame.kind in (frames.INPUT, frames.END_OF_INPUT):
                self._inputs.put(frame)
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        timer = threading.Timer(_KILL_S, self.signal, (signal.SIGKILL,))
        timer.daemon = True
        timer.start()

    def _feed(self) -> None:
        """Write what comes to the stdin of tasks; close it for no data."""
        while True:
            frame = self._inputs.get()
            with self._lock:
                processes = dict(self._processes)
            for number, process in processes.items():
                if frame.task in (frames.EVERY, number) and process.stdin is not None:
                    with contextlib.suppress(OSError, ValueError):  # it has closed its stdin
                        process.stdin.write(frame.data)
                        process.stdin.flush()
                        if frame.kind == frames.END_OF_INPUT:
                            process.stdin.close()


def _folder(path: str) -> str:
    """Return the folder in which tasks start; /tmp if the node lacks it, as in Slurm."""
    return path if os.path.isdir(path) else "/tmp"  # noqa: PTH112, S108
