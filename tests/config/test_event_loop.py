"""Ctrl-C is heard by a client that waits for a quiet run."""

import subprocess
import sys

import pytest

from config.event_loop import run_in_loop

WAITING = """
import asyncio, pathlib, signal, threading, time
from config.event_loop import run_in_loop

IDLE = {"232", "281"}  # epoll_wait and epoll_pwait of x86-64

def interrupt_idle_client():
    call = pathlib.Path(f"/proc/self/task/{threading.main_thread().native_id}/syscall")
    while call.read_text().split()[0] not in IDLE:
        time.sleep(0.001)
    # Python hears it, and the system call of the main thread goes on.
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

async def quiet():
    threading.Thread(target=interrupt_idle_client).start()
    await asyncio.Event().wait()

try:
    run_in_loop(quiet())
except KeyboardInterrupt:
    print("interrupted", signal.set_wakeup_fd(-1))
"""


def test_ctrl_c_is_heard_by_an_idle_client() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAITING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("interrupted -1\n", "")


def test_a_program_keeps_its_own_descriptor_for_signals() -> None:
    program = "\n".join(
        [
            "import os, signal",
            "from config.event_loop import run_in_loop",
            "async def nothing(): return 7",
            "read, write = os.pipe()",
            "os.set_blocking(write, False)",
            "signal.set_wakeup_fd(write)",
            "print(run_in_loop(nothing()), signal.set_wakeup_fd(-1) == write)",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "7 True\n"


def test_errors_and_results_are_those_of_the_work() -> None:
    async def fail() -> None:
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        run_in_loop(fail())
