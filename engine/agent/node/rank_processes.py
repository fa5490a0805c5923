"""The processes of a job's ranks on this node, and what they wait for: evidence about a hang.

It is limited in time and size, and no error leaves it. The job is not paused: py-spy reads its
memory while it runs (`--nonblocking`), and the stack of a process that hangs does not change. Of
a process's environment only the variables of its launcher are read.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.agent.node.job_processes import LAUNCHERS, JobProcess, job_processes, stat_fields
from engine.agent.program import STACKS, this_file
from engine.contract.codec import to_json
from engine.contract.worker_events import Frame, RankProcess, RanksExamined

LIMIT_S = 10.0
_SAMPLE_S = 0.5  # in which the processor time of a thread is measured
_WORKS = 0.2  # part of the time: a thread that only looks again and again uses less
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROCESSES = 64  # of a node to examine
_FRAMES = 64  # of a thread to keep
_NAME = 200  # characters of a name or a path
_TEXT = 256 * 1024  # characters of all processes of a node
_SHELLS = ("bash", "sh", "dash", "env", "timeout", "nice", "numactl")
"""Programs that start a rank's own one."""
_UTIME, _STIME = 11, 12  # in /proc/PID/stat, behind the name: proc(5)


def show(folder: Path) -> int:
    """Print the run's processes on this machine as JSON; return 0."""
    print(json.dumps(to_json(examine(folder.name))))
    return 0


def examine(run_id: str, node_rank: str | None = None, limit_s: float = LIMIT_S) -> RanksExamined:
    """Return the run's processes on the node; those of which the job has a rank, if it has any.

    Without `node_rank` they are those of the whole machine, which may be several nodes of a test.
    """
    end = time.monotonic() + limit_s
    marks = {"GPUCTL_RUN_ID": run_id}
    if node_rank is not None:
        marks["GPUCTL_NODE_RANK"] = node_rank
    ranks = _ranks(list(job_processes(marks)))[:_PROCESSES]
    began = {process.pid: (_ticks(process.pid), time.monotonic()) for process, _, _ in ranks}
    program = _stacks_program()
    dumps = {process.pid: _dump(program, process.pid) for process, _, _ in ranks}
    time.sleep(_SAMPLE_S)
    most = _TEXT // max(1, len(ranks))
    examined = []
    for process, rank, size in ranks:
        pid = process.pid
        stacks, why = _stacks(dumps[pid], end)
        threads = list(_threads(pid))
        if not threads:  # it has ended
            continue
        _, state, wchan = threads[0]
        text = _text(threads, stacks, why)
        before, at = began[pid]
        ticks, most_ticks = _ticks(pid) - before, (time.monotonic() - at) * _TICKS_PER_S
        has_run = ticks > _WORKS * most_ticks or (state == "R" and ticks > 0)
        frames = tuple(stacks.get(pid, ("", []))[1][:_FRAMES])
        seen = RankProcess(
            pid, rank, size, process.command, state, wchan, has_run, frames, text[:most]
        )
        examined.append(seen)
    return RanksExamined(tuple(examined))


def _ranks(processes: list[JobProcess]) -> list[tuple[JobProcess, int | None, int | None]]:
    """Return the main process of each rank, with rank and size, in their order.

    Without a launcher: the processes that have no children.
    """
    for name, size, required in LAUNCHERS:
        of_launcher = [
            process
            for process in processes
            if name in process.variables and (not required or required in process.variables)
        ]
        if of_launcher:
            by_rank: dict[int, list[JobProcess]] = {}
            for process in of_launcher:
                by_rank.setdefault(int(process.variables[name]), []).append(process)
            mains = ((rank, _main(those)) for rank, those in sorted(by_rank.items()))
            return [(main, rank, _number(main.variables.get(size))) for rank, main in mains]
    parents = {process.parent for process in processes}
    return [(process, None, None) for process in processes if process.pid not in parents]


def _main(processes: list[JobProcess]) -> JobProcess:
    """Return the first program of a rank, which is no shell; else the innermost shell."""
    programs = [process for process in processes if process.command not in _SHELLS]
    pids = {process.pid for process in programs}
    outermost = [process for process in programs if process.parent not in pids]
    if outermost:
        return min(outermost)
    parents = {process.parent for process in processes}
    return min(process for process in processes if process.pid not in parents)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _stacks_program() -> str:
    """Return the path of py-spy: the one that came with the agent, else the node's; else empty."""
    own = this_file() / STACKS
    if own.is_file():
        with contextlib.suppress(OSError):  # of another user, who has done it
            own.chmod(0o755)
        return str(own)
    return shutil.which("py-spy") or ""


def _dump(program: str, pid: int) -> subprocess.Popen[bytes] | str:
    """Start py-spy for the process; return why that is not possible instead."""
    if not program:
        return "py-spy did not come with gpuctl, and the node has none"
    try:
        return subprocess.Popen(
            [program, "dump", "--nonblocking", "--json", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:  # a program for another processor
        return f"py-spy cannot be started: {error.strerror}"


def _stacks(
    dump: subprocess.Popen[bytes] | str, end: float
) -> tuple[dict[int, tuple[str, list[Frame]]], str]:
    """Return names and frames of the Python threads by their ids, and why there are none."""
    if isinstance(dump, str):
        return {}, dump
    try:
        output, errors = dump.communicate(timeout=max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        dump.kill()
        dump.communicate()
        return {}, "py-spy did not end in time"
    try:
        return python_threads(json.loads(output)), ""
    except (ValueError, KeyError, TypeError):
        lines = errors.decode(errors="replace").strip().splitlines()
        return {}, f"py-spy: {lines[0][:_NAME] if lines else 'no output'}"


def python_threads(dump: Any) -> dict[int, tuple[str, list[Frame]]]:
    """Return names and frames of the threads in py-spy's JSON by their ids."""
    return {
        thread["os_thread_id"]: (
            str(thread["thread_name"] or "")[:_NAME],
            [
                Frame(frame["name"][:_NAME], frame["filename"][-_NAME:], frame["line"])
                for frame in thread["frames"]
            ],
        )
        for thread in dump
    }


def _threads(pid: int) -> Iterator[tuple[int, str, str]]:
    """Yield id, state and wait channel of each thread, the main one first."""
    with contextlib.suppress(OSError):  # it has ended
        ids = sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
        for thread in sorted(ids, key=lambda number: number != pid):
            with contextlib.suppress(OSError):  # this thread has ended
                task = Path(f"/proc/{pid}/task/{thread}")
                state = stat_fields(task / "stat")[0]
                wchan = (task / "wchan").read_text().strip()
                yield thread, state, "" if wchan == "0" else wchan


def _text(
    threads: Iterable[tuple[int, str, str]],
    stacks: Mapping[int, tuple[str, list[Frame]]],
    why: str,
) -> str:
    """Return all threads in words; those without a Python stack are counted by what they wait for.

    For the main thread also the kernel's stack, if this user may read it.
    """
    lines = [f"no Python stacks: {why}"] if why else []
    plain: dict[tuple[str, str], int] = {}
    for number, (thread, state, wchan) in enumerate(threads):
        if number and thread not in stacks:
            plain[state, wchan] = plain.get((state, wchan), 0) + 1
            continue
        name, frames = stacks.get(thread, ("", []))
        lines.append(f"thread {thread} {name}: state {state} {wchan}".rstrip())
        for frame in frames[:_FRAMES]:
            lines.append(f"  {frame.function} ({frame.path}:{frame.line})")
        if number == 0:
            with contextlib.suppress(OSError):  # for root alone
                stack = Path(f"/proc/{thread}/stack").read_text()
                lines += [f"  kernel: {line}" for line in stack.splitlines()]
    lines += [
        f"{count} more threads: state {state} {wchan}".rstrip()
        for (state, wchan), count in plain.items()
    ]
    return "\n".join(lines) + "\n"


def _ticks(pid: int) -> int:
    """Return the processor time of the main thread in ticks; -1 if it has ended."""
    with contextlib.suppress(OSError):  # see above
        fields = stat_fields(Path(f"/proc/{pid}/task/{pid}/stat"))
        return int(fields[_UTIME]) + int(fields[_STIME])
    return -1
