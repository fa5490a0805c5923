"""Kill commands at many points: `python -m tests.leaks --points 200` (`make soak POINTS=200`)."""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.infra.region import Worlds
from tests.leaks.points import point
from tests.leaks.scene import leaks_of


def main(words: list[str] | None = None) -> int:
    """Carry the points out; return 0 if nothing leaked."""
    parser = argparse.ArgumentParser(prog="python -m tests.leaks", description=__doc__)
    parser.add_argument("--points", type=int, default=20, help="how many, one after the other")
    parser.add_argument("--seed", type=int, help="the first seed; the next points have the next")
    asked = parser.parse_args(words)
    first = random.randrange(1_000_000) if asked.seed is None else asked.seed
    whole = 0
    worlds = Worlds()
    try:
        for seed in range(first, first + asked.points):
            whole += take(seed, worlds)
    finally:
        worlds.end()
    print(f"{whole} of {asked.points}")
    return 0 if whole == asked.points else 1


def take(seed: int, worlds: Worlds) -> bool:
    """Carry the point of the seed out, print it and what leaked; return whether nothing did."""
    one, folder = point(seed), Path(tempfile.mkdtemp(prefix="gpuctl-leaks-"))
    try:
        left = leaks_of(one, worlds, folder)
    except AssertionError as error:
        left = [str(error)]
    if not left:
        shutil.rmtree(folder)
        print(f"{one}: nothing is left", flush=True)
        return True
    print(f"{one}: LEAKED, evidence in {folder}", *left, sep="\n  ", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
