"""Tests beside pauses: `python -m tests.pauses [--seed 7] -n 4 -m 'not lab'` (root).

Processes of the tests are frozen at random, one to three at a time, each for some tenths of a
second. A test that fails beside that counts on the order in which processes get on. The other
options are pytest's. A control group freezes them: nobody notices, as a shell notices SIGSTOP.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

LONGEST_S = 1.0
"""Heartbeats and other limits of the product are longer."""

BETWEEN_S = 0.1
"""Between two pauses, on average."""


@dataclass(frozen=True)
class Freezer:
    """A control group whose processes do nothing while it is frozen."""

    hierarchy: Path
    group: Path
    file: str
    words: tuple[str, str]

    @contextmanager
    def hold(self, pids: list[int]) -> Iterator[None]:
        """Freeze the processes until the end of this, then put them where they were."""
        homes = {pid: self._home(pid) for pid in pids}
        (self.group / self.file).write_text(self.words[0])
        for pid in pids:
            _move(pid, self.group)
        try:
            yield
        finally:
            (self.group / self.file).write_text(self.words[1])
            somewhere = next(iter(homes.values()), self.hierarchy)
            for _ in range(100):  # a process that was just being forked has come along
                held = (self.group / "cgroup.procs").read_text().split()
                for pid in map(int, held):
                    _move(pid, homes.get(pid, somewhere))
                if not held:
                    break

    def _home(self, pid: int) -> Path:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
                _, names, path = line.split(":", 2)
                if names == ("freezer" if self.file == "freezer.state" else ""):
                    return self.hierarchy / path.lstrip("/")
        return self.hierarchy


@contextmanager
def freezer() -> Iterator[Freezer]:
    """A group of its own in the freezer of cgroup v1, or in v2 where there is none."""
    v1 = Path("/sys/fs/cgroup/freezer")
    hierarchy = v1 if v1.is_dir() else Path("/sys/fs/cgroup")
    group = hierarchy / f"gpuctl-pauses-{os.getpid()}"
    group.mkdir()
    words = ("FROZEN", "THAWED") if hierarchy == v1 else ("1", "0")
    file = "freezer.state" if hierarchy == v1 else "cgroup.freeze"
    try:
        yield Freezer(hierarchy, group, file, words)
    finally:
        group.rmdir()


def _move(pid: int, group: Path) -> None:
    with suppress(OSError):  # it has ended, or its home has
        (group / "cgroup.procs").write_text(str(pid))


def descendants(pid: int) -> list[int]:
    """Return the processes that this one started, and those that they did."""
    children = defaultdict[int, list[int]](list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            children[int(stat.read_text().rpartition(")")[2].split()[1])].append(
                int(stat.parent.name)
            )
    found = list(children[pid])
    for one in found:  # it grows
        found += children[one]
    return found


def main() -> int:
    """Run pytest beside pauses; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.pauses", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    asked, words = parser.parse_known_args()
    chance, pauses = random.Random(asked.seed), 0
    tests = subprocess.Popen([sys.executable, "-m", "pytest", *words])
    with freezer() as cold, suppress(KeyboardInterrupt):  # Ctrl-C also reaches pytest
        while tests.poll() is None:
            time.sleep(chance.expovariate(1 / BETWEEN_S))
            if others := descendants(tests.pid):
                some = chance.sample(others, min(len(others), chance.choice([1, 1, 1, 2, 3])))
                with cold.hold(some):
                    time.sleep(min(LONGEST_S, chance.expovariate(1 / BETWEEN_S)))
                pauses += 1
    sys.stdout.write(f"seed {asked.seed}, {pauses} pauses\n")
    return tests.wait()


if __name__ == "__main__":
    sys.exit(main())
