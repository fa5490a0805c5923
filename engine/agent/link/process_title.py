"""The name under which the agent's processes are listed.

A job may end all Pythons of its machine, or all processes of a program (`pkill -9 python3`,
`killall`, `pkill -f`, `ray stop --force`). They choose by the name of a process, which is in
/proc/PID/comm, or by its arguments. So the agent's processes have neither the interpreter's name
nor the run's name there.
"""

from __future__ import annotations

import contextlib

NAME = "gpuctl-agent"
_ARGUMENTS = slice(45, 47)  # arg_start and arg_end of /proc/PID/stat, behind the name: proc(5)


def rename_process(*words: str) -> None:
    """List this process as `gpuctl-agent WORDS`; keep its name if the system forbids it."""
    title = b"\0".join(word.encode() for word in (NAME, *words)) + b"\0"
    with contextlib.suppress(OSError, ValueError):  # the process keeps its name
        with open("/proc/self/comm", "w", encoding="utf-8") as comm:
            comm.write(NAME)
        with open("/proc/self/stat", encoding="utf-8") as stat:
            fields = stat.read().rpartition(")")[2].split()
        start, end = map(int, fields[_ARGUMENTS])
        room = end - start
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(title[: room - 1].ljust(room, b"\0"))
