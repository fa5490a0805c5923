"""Cold demos in a row, beside a load: `python -m tests.soak --demos 20` (`make soak DEMOS=20`).

A demo is cold: the lab starts, the machines boot, the job runs, and nothing may be left. Every demo
must end well. What a failed one showed is kept in a folder that its line names.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "demo"
LAB = "soak"
"""The demos have a lab of their own, so that one that runs already is left alone."""
DEMO_SECONDS = 900.0
"""How long one demo may take beside the load; a quiet machine of 2 cores needs one minute."""

_BLOCK = bytes(1 << 20)
_FILE_BLOCKS = 256  # the disk's load: 256 MiB written, synced, removed, and so on
_PAUSE_S = 1.0  # between two such files, so that others can write too


@dataclass(frozen=True)
class Demo:
    """One demo that ended: its number from 1, exit code (None: time-out), duration, folder."""

    number: int
    code: int | None
    seconds: float
    folder: Path

    @property
    def is_good(self) -> bool:
        """Whether the demo ended with exit code 0."""
        return self.code == 0


def main(
    words: list[str] | None = None, script: Path = SCRIPT, demo_s: float = DEMO_SECONDS
) -> int:
    """Run the demos; return 0 when all of them ended well."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--demos", type=int, default=20, help="how many, one after the other")
    parser.add_argument("--load", type=int, default=4, help="processes that keep a CPU busy")
    parser.add_argument(
        "--kept", type=Path, default=ROOT / "build" / "soak", help="folder of the evidence"
    )
    asked = parser.parse_args(words)
    shutil.rmtree(asked.kept, ignore_errors=True)
    asked.kept.mkdir(parents=True)
    failed = []
    with load(asked.load):
        for number in range(1, asked.demos + 1):
            demo = run_demo(number, asked.kept / f"demo-{number}", script, demo_s)
            print(line(demo, asked.demos), flush=True)
            if demo.is_good:
                shutil.rmtree(demo.folder)
            else:
                failed.append(demo)
    print(f"{asked.demos - len(failed)} of {asked.demos}")
    return 1 if failed else 0


def line(demo: Demo, demos: int) -> str:
    """Return what is printed of a demo that ended."""
    average = os.getloadavg()[0]
    head = f"demo {demo.number} of {demos}: {demo.seconds:.0f} s, load {average:.0f}"
    if demo.is_good:
        return head
    end = "timed out" if demo.code is None else f"exit code {demo.code}"
    return f"{head}: FAILED ({end}), evidence in {demo.folder}"


def run_demo(number: int, folder: Path, script: Path, demo_s: float) -> Demo:
    """Run `make demo`'s script with a lab and a state folder of its own.

    Afterwards `folder` has its output and its state; after a failure also the consoles of the
    machines and the lab's log, which the script keeps before it stops the lab.
    """
    folder.mkdir()
    own = {"XDG_STATE_HOME": str(folder / "state"), "EVIDENCE": str(folder / "evidence")}
    started = time.monotonic()
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(
            [script, LAB],
            cwd=ROOT,
            env=os.environ | own,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(demo_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.returncode is None:
                # Its command ends first, then the script, whose trap stops the lab.
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
    return Demo(number, code, time.monotonic() - started, folder)


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep `processes` CPUs and the disk busy meanwhile; the load ends with this process too."""
    context = get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="gpuctl-soak-") as folder:
        workers = [context.Process(target=_spin, daemon=True) for _ in range(processes)]
        workers.append(context.Process(target=_write, args=(Path(folder),), daemon=True))
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            for worker in workers:
                worker.kill()
                worker.join()


def _spin() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


def _write(folder: Path) -> None:
    parent = os.getppid()
    path = folder / "load"
    while os.getppid() == parent:
        with path.open("wb") as file:
            for _ in range(_FILE_BLOCKS):
                file.write(_BLOCK)
            os.fsync(file.fileno())
        path.unlink()
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    sys.exit(main())
