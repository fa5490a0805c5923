"""How long `gpuctl --help` takes, as a ratio against `pulumi version` in the same run.

    .venv/bin/python -m benchmarks.startup

Both are started in turn (A B A B …), so that a machine that slows down slows both. Medians of
whole processes, wall time.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from config.progress import silent
from infra.stack.installation import find_engine

RUNS = 15


def seconds(command: list[str]) -> float:
    """Wall time of one whole process."""
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    """The medians and their ratio are on stdout."""
    gpuctl = [str(Path(sys.executable).with_name("gpuctl")), "--help"]
    pulumi = [str(find_engine(silent).path), "version"]
    pairs = [(seconds(gpuctl), seconds(pulumi)) for _ in range(RUNS + 1)][1:]  # the first warms up
    ours = statistics.median(a for a, _ in pairs)
    theirs = statistics.median(b for _, b in pairs)
    print(f"gpuctl --help   {ours * 1000:6.0f} ms (median of {RUNS})")
    print(f"pulumi version  {theirs * 1000:6.0f} ms")
    print(f"ratio           {statistics.median(a / b for a, b in pairs):6.2f}")


if __name__ == "__main__":
    main()
