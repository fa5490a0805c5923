"""Hit a run with random failures: `python -m tests.storm --seed N --failures 10 [--machines 2]`."""

import argparse
import random
import time

from tests.storm import machines, processes


def main() -> None:
    """Run the storm."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--failures", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument(
        "--machines",
        type=int,
        nargs="?",
        const=2,
        help="on machines of the lab (root), 2 or as many as said; else processes of this machine",
    )
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    began = time.monotonic()
    if asked.machines:
        machines.weather(asked.seed, asked.failures, asked.ranks, asked.machines)
    else:
        processes.weather(asked.seed, asked.failures, asked.ranks)
    print(f"done after {time.monotonic() - began:.0f} s, every step of every rank was made once")


if __name__ == "__main__":
    main()
