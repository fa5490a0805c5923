"""Run an agent on a machine whose clock is set: by the seconds in a file, while the agent runs.

The machines of the lab have this machine's clock, and so nobody can set that of one of them.
"""

import runpy
import sys
import time
from pathlib import Path

_now = time.time


def _set_time() -> float:
    file = Path(sys.argv[0]).parent / sys.argv[-1] / "clock"
    return _now() + (float(file.read_text()) if file.exists() else 0)


if __name__ == "__main__":
    time.time = _set_time
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
