"""`srun` inside a job: it starts a step's tasks on the job's nodes, and shows their output.

On each node of the step runs one process (task_host.py), started with the run's remote agent
(`bin/ssh`). Exit status, messages and labels are those of srun(1) and src/srun/launch.c.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from engine.agent.slurm import frames
from engine.agent.slurm.frames import FrameWriter, read_frame
from engine.agent.slurm.layout import (
    Choice,
    Job,
    environment_values,
    expand,
    file_name,
    gpus_of_task,
    repeat_counts,
    step_layout,
    step_size,
)
from engine.agent.slurm.resources import Resources
from engine.agent.slurm.srun_options import NO_MPI, Options

HOME = "GPUCTL_SLURM_HOME"
TRAVELLED = "GPUCTL_SLURM_TRAVELLED"
"""The variable with the names of those that came from the submitter's machine."""
FAILED_STEPS = "failed-steps"
_PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGTSTP")
_BUSY_S = 0.2  # between two tries to get resources
_KILL_S = 30.0  # KillWait of slurm.conf(5)
_LOST = 255


def srun(words: list[str]) -> int:
    """Run a step and return its exit status."""
    if HOME not in os.environ:
        raise ValueError("srun runs inside a batch script alone")
    options = Options(words, os.environ)
    if not options.command:
        raise ValueError("No command given to execute.")
    mpi = options.text("mpi").lower()
    if mpi == "list":
        sys.stderr.write("MPI plugin types are...\n\tnone\n")
        return 0
    if mpi not in ("", "none"):
        raise ValueError(f"--mpi={mpi}: {NO_MPI}")
    step = Step(options)
    try:
        return step.run()
    finally:
        step.release()


def sbcast(words: list[str]) -> int:
    """Copy a file to every node of the job, as `sbcast SOURCE TARGET` does."""
    files = [word for word in words if not word.startswith("-")]
    if len(files) != 2:
        raise ValueError("write sbcast SOURCE TARGET")
    source, target = files
    target = f"{target}{Path(source).name}" if target.endswith("/") else target
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    copy = f"cat > {shlex.quote(target)} && chmod {Path(source).stat().st_mode & 0o777:o} "
    command = ["sh", "-c", copy + shlex.quote(target)]
    return srun(["--overlap", "-N", nodes, "-n", nodes, f"--input={source}", *command])


class Step:
    """A step: its tasks, the connections to their nodes, and how they ended."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._home = Path(os.environ[HOME])
        names = tuple(expand(os.environ["SLURM_JOB_NODELIST"]))
        gpus = tuple(int(g) for g in os.environ.get("SLURM_JOB_GPUS", "").split(",") if g)
        cpus = int(os.environ.get("SLURM_CPUS_ON_NODE", "1"))
        self._job = Job(names, cpus, gpus)
        notes: list[str] = []
        count, self._size = step_size(options, self._job, notes)
        self._layout = step_layout(options, count, self._size)
        for text in (*options.notes, *notes):
            _say(f"warning: {text}")
        self._resources = Resources(self._home, len(names), cpus, gpus)
        self._number = -1
        self._statuses: dict[int, int] = {}
        self._writers: dict[int, FrameWriter] = {}
        self._node_of: dict[int, int] = {}
        self._changed = threading.Condition()
        self._is_ended_by_us = False
        self._files: dict[str, IO[bytes]] = {}

    def run(self) -> int:
        """Start the tasks, wait for all of them, and return the step's exit status."""
        choice = Choice(self._options, self._job, self._layout)
        gpus = self._take(choice)
        for name in _PASSED_ON:
            signal.signal(getattr(signal, name), self._pass_on)
        tasks = self._layout.tasks()
        commands = self._commands()
        processes, readers = [], []
        for place, node in enumerate(choice.nodes):
            own = gpus.get(node, ()) or choice.gpus_without_share(node)
            spec = self._spec(choice.nodes, place, tasks, own, commands)
            process = self._connect(self._job.names[node])
            processes.append(process)
            assert process.stdin is not None
            writer = FrameWriter(process.stdin.fileno())
            with self._changed:
                self._writers[node] = writer
                self._node_of.update(dict.fromkeys(tasks[place], node))
            writer.send(frames.SPEC, 0, json.dumps(spec).encode())
            reader = threading.Thread(target=self._read, args=(process, tasks[place]), daemon=True)
            reader.start()
            readers.append(reader)
        threading.Thread(target=self._send_input, daemon=True).start()
        self._wait(readers)
        for process in processes:
            with contextlib.suppress(OSError):  # the task host has ended
                assert process.stdin is not None
                process.stdin.close()
            process.wait()
        for file in self._files.values():
            file.close()
        status = self._status()
        if status:
            self._record(status)
        return status

    def release(self) -> None:
        """Give back the step's processors and GPUs."""
        self._resources.release()

    def _take(self, choice: Choice) -> dict[int, tuple[int, ...]]:
        """Return the step's GPUs by node, once processors and GPUs are free."""
        is_announced = False
        while True:
            taken = self._resources.take(choice.choose)
            if taken is not None:
                self._number, gpus = taken
                return gpus
            if self._options.has("immediate"):
                raise ValueError("Unable to create step: Requested nodes are busy")
            if not is_announced:
                job = os.environ.get("SLURM_JOB_ID", "")
                why = "step creation temporarily disabled, retrying (nodes are busy)"
                _say(f"Job {job} {why}")
                is_announced = True
            time.sleep(_BUSY_S)

    def _connect(self, node: str) -> subprocess.Popen[bytes]:
        words = [str(self._home / "ssh"), node, f"exec {shlex.quote(str(self._home / 'step'))}"]
        return subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def _commands(self) -> list[list[str]]:
        """Return the command of each task."""
        if not self._options.has("multi-prog"):
            return [_resolved(self._options.command, self._folder())] * self._size
        path = Path(self._options.command[0])
        lines = path.read_text().replace("\\\n", " ").splitlines()
        commands: dict[int, list[str]] = {}
        for line in lines:
            words = shlex.split(line, comments=True)
            if len(words) > 1:
                numbers = _numbers(words[0], self._size)
                for offset, number in enumerate(numbers):
                    own = [
                        w.replace("%t", str(number)).replace("%o", str(offset)) for w in words[1:]
                    ]
                    commands.setdefault(number, _resolved(own, self._folder()))
        missing = [number for number in range(self._size) if number not in commands]
        if missing:
            raise ValueError(f"{path}: no program for task {missing[0]}")
        return [commands[number] for number in range(self._size)]

    def _folder(self) -> str:
        return str(Path.cwd() / self._options.text("chdir"))

    def _spec(
        self,
        nodes: list[int],
        place: int,
        tasks: list[list[int]],
        gpus: tuple[int, ...],
        commands: list[list[str]],
    ) -> dict[str, Any]:
        names = [self._job.names[node] for node in nodes]
        shared = {
            "SLURM_STEP_ID": str(self._number),
            "SLURM_STEPID": str(self._number),
            "SLURM_STEP_NODELIST": ",".join(names),
            "SLURM_STEP_NUM_NODES": str(len(nodes)),
            "SLURM_STEP_NUM_TASKS": str(self._size),
            "SLURM_STEP_TASKS_PER_NODE": repeat_counts(map(len, tasks)),
            "SLURM_TASKS_PER_NODE": repeat_counts(map(len, tasks)),
            "SLURM_NTASKS": str(self._size),
            "SLURM_NPROCS": str(self._size),
            "SLURM_NNODES": str(len(nodes)),
            "SLURM_LAUNCH_NODE_IPADDR": self._job.names[0],
            "SLURM_SRUN_COMM_HOST": self._job.names[0],
            "SLURM_NODEID": str(place),
            "SLURMD_NODENAME": names[place],
            "SLURM_GTIDS": ",".join(map(str, tasks[place])),
        }
        if self._options.has("distribution"):
            shared["SLURM_DISTRIBUTION"] = self._options.text("distribution")
        if "cpus-per-task" in self._options.on_line:
            shared["SLURM_CPUS_PER_TASK"] = self._options.text("cpus-per-task")
        if self._job.gpus:
            shared["SLURM_STEP_GPUS"] = shared["SLURM_JOB_GPUS"] = ",".join(map(str, gpus))
        environment, is_bare = self._environment()
        own = []
        for local, number in enumerate(tasks[place]):
            variables = {**shared, "SLURM_PROCID": str(number), "SLURM_LOCALID": str(local)}
            if self._job.gpus:
                visible = gpus_of_task(self._options, gpus, local)
                listed = ",".join(map(str, visible))
                variables["SLURM_GPUS_ON_NODE"] = str(len(gpus))
                if self._restricts_gpus(visible):
                    variables |= {"CUDA_VISIBLE_DEVICES": listed, "GPU_DEVICE_ORDINAL": listed}
            own.append({"number": number, "environment": variables, "command": commands[number]})
        return {
            "tasks": own,
            "folder": self._folder(),
            "environment": environment,
            "is_bare": is_bare,
            "travelled": os.environ.get(TRAVELLED, "").split(","),
            "is_unbuffered": self._options.has("unbuffered"),
        }

    def _restricts_gpus(self, visible: list[int]) -> bool:
        """Return whether the task must not see all GPUs of its node."""
        return tuple(visible) != self._job.gpus or "CUDA_VISIBLE_DEVICES" in os.environ

    def _environment(self) -> tuple[dict[str, str], bool]:
        """Return the variables that travel, and whether each node's own environment counts."""
        words = [word for word in self._options.text("export").split(",") if word]
        if not words or any(word.upper() == "ALL" for word in words):
            added = dict(word.split("=", 1) for word in words if "=" in word)
            return {**os.environ, **added}, False
        chosen = {k: v for k, v in os.environ.items() if k.startswith(("SLURM", "GPUCTL_SLURM"))}
        for word in words:
            name, equals, text = word.partition("=")
            if equals or name in os.environ:
                chosen[name] = text if equals else os.environ[name]
        chosen["PATH"] = os.environ.get("PATH", "")
        return chosen, True

    def _read(self, process: subprocess.Popen[bytes], numbers: list[int]) -> None:
        """Show what a node sends, to its end."""
        assert process.stdout is not None
        while (frame := read_frame(process.stdout.fileno())) is not None:
            if frame.kind in (frames.STDOUT, frames.STDERR):
                self._show(frame.task, frame.kind, frame.data)
            elif frame.kind == frames.FAULT:
                _say(f"error: task {frame.task}: {frame.data.decode(errors='replace')}")
            elif frame.kind == frames.EXITED:
                self._note_end(frame.task, int(frame.data))
        for number in numbers:
            with self._changed:
                is_lost = number not in self._statuses
            if is_lost:
                _say(f"error: task {number}: the connection to its node ended")
                self._note_end(number, _LOST, is_silent=True)

    def _show(self, task: int, kind: bytes, data: bytes) -> None:
        """Write a task's lines to this process's output or to a file, with labels if need be."""
        name = "output"
        if kind == frames.STDERR and self._options.has("error"):
            name = "error"
        mode = self._options.text(name)
        if mode == "none" or (mode.isdecimal() and int(mode) != task):
            return
        if self._options.has("label"):
            label = f"{task:>{len(str(self._size - 1))}}: ".encode()
            data = b"".join(label + line for line in data.splitlines(keepends=True))
            data += b"" if data.endswith(b"\n") else b"\n"
        with self._changed:
            if mode in ("", "all") or mode.isdecimal():
                stream = sys.stderr.buffer if kind == frames.STDERR else sys.stdout.buffer
            else:
                stream = self._file(mode, task)
            with contextlib.suppress(BrokenPipeError):  # nobody reads any more, as in `| head`
                stream.write(data)
                stream.flush()

    def _file(self, pattern: str, task: int) -> IO[bytes]:
        values = environment_values(os.environ)
        node = self._node_of.get(task, 0)
        values |= {
            "J": f"{values['j']}.{self._number}",
            "s": str(self._number),
            "t": str(task),
            "N": self._job.names[node],
            "n": str(node),
        }
        path = Path(self._folder()) / file_name(pattern, values)
        if str(path) not in self._files:
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = "ab" if self._options.text("open-mode").startswith("a") else "wb"
            self._files[str(path)] = path.open(mode)
        return self._files[str(path)]

    def _note_end(self, task: int, status: int, is_silent: bool = False) -> None:
        """Keep how a task ended, report a failure, and end the others if the options say so."""
        with self._changed:
            self._statuses[task] = status
            is_first = len(self._statuses) == 1
            node = self._job.names[self._node_of.get(task, 0)]
            self._changed.notify_all()
        if status and not is_silent and not (status < 0 and self._is_ended_by_us):
            what = f"Exited with exit code {status}" if status > 0 else signal.strsignal(-status)
            _say(f"error: {node}: task {task}: {what}")
        if status and self._options.has("kill-on-bad-exit"):
            self._end_tasks()
        seconds = self._options.number("wait")
        if is_first and seconds:
            timer = threading.Timer(seconds, self._end_tasks)
            timer.daemon = True
            timer.start()

    def _end_tasks(self) -> None:
        """Send SIGCONT, SIGTERM and after a while SIGKILL to the tasks, once."""
        with self._changed:
            if self._is_ended_by_us or len(self._statuses) == self._size:
                return
            self._is_ended_by_us = True
        _say(f"Terminating StepId={os.environ.get('SLURM_JOB_ID', '')}.{self._number}")
        for number in (signal.SIGCONT, signal.SIGTERM):
            self._signal(number)
        timer = threading.Timer(_KILL_S, self._signal, (signal.SIGKILL,))
        timer.daemon = True
        timer.start()

    def _signal(self, number: int) -> None:
        for writer in list(self._writers.values()):
            writer.send(frames.SIGNAL, frames.EVERY, str(int(number)).encode())

    def _pass_on(self, number: int, _: object) -> None:
        """Pass a signal on to the tasks, in a thread: a handler must not wait for a lock."""
        threading.Thread(target=self._signal, args=(number,), daemon=True).start()
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            timer = threading.Timer(_KILL_S, self._signal, (signal.SIGKILL,))
            timer.daemon = True
            timer.start()

    def _send_input(self) -> None:
        """Send stdin, or the file of `--input`, to all tasks or to one; close it at its end."""
        mode, task = self._options.text("input"), frames.EVERY
        descriptor = 0
        try:
            if mode == "none":
                descriptor = os.open(os.devnull, os.O_RDONLY)
            elif mode.isdecimal():
                task = int(mode)
            elif mode not in ("", "all"):
                path = Path(self._folder()) / file_name(mode, environment_values(os.environ))
                descriptor = os.open(path, os.O_RDONLY)
            while data := os.read(descriptor, 65536):
                self._feed(frames.INPUT, task, data)
        except OSError as error:
            if mode:
                _say(f"error: --input={mode}: {error.strerror}")
        self._feed(frames.END_OF_INPUT, frames.EVERY)

    def _feed(self, kind: bytes, task: int, data: bytes = b"") -> None:
        for writer in list(self._writers.values()):
            writer.send(kind, task, data)

    def _wait(self, readers: list[threading.Thread]) -> None:
        with self._changed:
            while len(self._statuses) < self._size:
                self._changed.wait(1.0)  # wakes up for signals
        for reader in readers:
            reader.join()

    def _status(self) -> int:
        """Return 128 and the highest signal that ended a task, else the highest exit status."""
        signals = [-status for status in self._statuses.values() if status < 0]
        return 128 + max(signals) if signals else max(self._statuses.values(), default=0)

    def _record(self, status: int) -> None:
        """Note the failure for the end of the script, which may not notice it."""
        command = " ".join(self._options.command)
        record = {"step": self._number, "status": status, "command": command[:200]}
        with (self._home / FAILED_STEPS).open("a") as file:
            file.write(json.dumps(record) + "\n")


def _numbers(text: str, size: int) -> list[int]:
    """Return the tasks of `0,2-3` or `*` in a file of `--multi-prog`."""
    if text == "*":
        return list(range(size))
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        numbers += range(int(first), int(last if dash else first) + 1)
    return [number for number in numbers if number < size]


def _resolved(command: list[str], folder: str) -> list[str]:
    """Return the command; a program that PATH lacks and the folder has is the folder's."""
    program, *rest = command
    path = Path(folder) / program
    if "/" not in program and shutil.which(program) is None and os.access(path, os.X_OK):
        return [str(path), *rest]
    return command


def _say(text: str) -> None:
    sys.stderr.write(f"srun: {text}\n")
    sys.stderr.flush()
