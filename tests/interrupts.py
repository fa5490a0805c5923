"""Programs that tests interrupt."""

import time
from pathlib import Path

INTERRUPTIBLE = ("env", "--default-signal=INT")
"""In front of a command: Ctrl-C ends it although the tests themselves ignore Ctrl-C, as a shell has
its background jobs do, and nohup."""


def until_idle(pid: int) -> None:
    """Return when the process has used no processor for a while: it only waits.

    Python loses an interruption that comes in the middle of an import, where it calls back from C
    (weak references of import locks: "Exception ignored in"); a person presses Ctrl-C again.
    """
    used, still = -1, 0
    for _ in range(600):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        before, used = used, int(fields[11]) + int(fields[12])  # utime and stime
        still = still + 1 if used == before else 0
        if still == 3:
            return
        time.sleep(0.1)
    raise TimeoutError(f"process {pid} is at work after 60 s")
