"""Hit a run with random failures: `python -m tests.storm --seed N --failures 10 [--machines 2]`."""

import argparse
import random
import sys
import time
import traceback

from tests.storm import machines, processes


def main(words: list[str] | None = None) -> int:
    """Run the storms; return 0 if every run ended well, with every step made once."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the first storm; the next have the next seeds")
    parser.add_argument("--storms", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--failures", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument(
        "--machines",
        type=int,
        nargs="?",
        const=2,
        help="on machines of the lab (root), 2 or as many as said; else processes of this machine",
    )
    asked = parser.parse_args(words)
    first = random.randrange(1 << 30) if asked.seed is None else asked.seed
    whole = sum(take(seed, asked) for seed in range(first, first + asked.storms))
    print(f"{whole} of {asked.storms}")
    return 0 if whole == asked.storms else 1


def take(seed: int, asked: argparse.Namespace) -> bool:
    """Run the storm of the seed, and print it and how it ended; return whether it ended well."""
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    try:
        if asked.machines:
            machines.weather(seed, asked.failures, asked.ranks, asked.machines)
        else:
            processes.weather(seed, asked.failures, asked.ranks)
    except Exception:  # whatever it is, the next storm is to come
        traceback.print_exc()
        print(f"seed {seed}: FAILED after {time.monotonic() - began:.0f} s", flush=True)
        return False
    seconds = f"{time.monotonic() - began:.0f} s"
    print(f"done after {seconds}, every step of every rank was made once", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
