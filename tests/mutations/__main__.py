"""`python -m tests.mutations`: how many single changes of the pure modules their tests notice."""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.mutations.mutants import Change, Module, Mutant
from tests.mutations.subjects import SUBJECTS
from tests.mutations.trials import ROOT, Done, Trial, run_trials

EQUIVALENT = Path(__file__).with_name("equivalent.txt")
PATIENCE = 8  # times what the tests need without a mutation, on a machine with other work


def main() -> int:
    """Run a sample, print survivors and a table; 1 if less than wanted was killed."""
    options = _options()
    paths = [path for path in SUBJECTS if not options.module or path in options.module]
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    modules = [Module(path, (ROOT / path).read_text()) for path in paths]
    changes = [change for module in modules for change in module.changes()]
    sample = choose(changes, options.sample or len(changes), random.Random(seed))
    print(f"{len(sample)} of {len(changes)} mutants of {len(paths)} modules, --seed {seed}")
    with tempfile.TemporaryDirectory(prefix="gpuctl-mutations-") as folder:
        limits = _baseline(sorted({one.path for one in sample}), Path(folder), options.jobs)
        if limits is None:
            return 1
        trials = [
            Trial(one.path, one.text, SUBJECTS[one.path], *limits[one.path]) for one in sample
        ]
        ends: list[tuple[Mutant, Done]] = []
        print(f"tests pass without a mutation; {len(trials)} trials begin", flush=True)
        for done in run_trials(trials, Path(folder), options.jobs):
            mutant = sample[done.trial]
            ends.append((mutant, done))
            if done.outcome == "survived":
                print(f"survived: {mutant}", flush=True)
    print()
    print("\n".join(table(ends)))
    killed = sum(done.outcome != "survived" for _, done in ends)
    return 0 if killed >= options.wanted / 100 * len(ends) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--sample", type=int, help="mutants, chosen at random (default: all)")
    parser.add_argument("--seed", type=int, help="of the choice (default: a new one, printed)")
    parser.add_argument("--module", action="append", help="this one alone; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="trials at a time")
    parser.add_argument("--wanted", type=float, default=95.0, help="percent (default: 95)")
    return parser.parse_args()


def choose(changes: list[Change], count: int, chance: random.Random) -> list[Mutant]:
    """Return so many mutants at random, of each text one, in source order."""
    equivalent, found = read_equivalent(), dict[str, Mutant]()
    for change in chance.sample(changes, len(changes)):
        mutant = change.mutant() if len(found) < count else None
        if mutant and (mutant.path, mutant.before, mutant.after) not in equivalent:
            found.setdefault(mutant.text, mutant)
    return sorted(found.values(), key=lambda one: (one.path, one.line))


def read_equivalent() -> set[tuple[str, str, str]]:
    """Read mutants that change nothing that anybody can see: `path: before -> after`."""
    found = set()
    for line in EQUIVALENT.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            path, _, change = line.partition(": ")
            before, _, after = change.partition(" -> ")
            found.add((path, before.strip("`"), after.strip("`")))
    return found


def _baseline(paths: list[str], folder: Path, jobs: int) -> dict[str, tuple[float, int]] | None:
    """Run each module's tests without a mutation; return the limits of its trials.

    None if any fails: then nothing can be said about mutants.
    """
    # Modules that have the same tests have the same limits.
    first = {SUBJECTS[path]: path for path in reversed(paths)}
    trials = [
        Trial(path, Module(path, (ROOT / path).read_text()).text, tests, 600, 600)
        for tests, path in first.items()
    ]
    limits = {}
    for done in run_trials(trials, folder / "baseline", jobs):
        trial = trials[done.trial]
        if done.outcome != "survived":
            print(f"the tests of {trial.path} fail without a mutation:\n{done.output}")
            return None
        limits[trial.tests] = (30 + PATIENCE * done.seconds, int(20 + PATIENCE * done.seconds))
    return {path: limits[SUBJECTS[path]] for path in paths}


def table(ends: list[tuple[Mutant, Done]]) -> list[str]:
    """Return a line per module and their sum, as a table of Markdown."""
    counted: dict[str, Counter[str]] = {}
    for mutant, done in sorted(ends, key=lambda end: end[0].path):
        counted.setdefault(mutant.path, Counter())[done.outcome] += 1
    lines = [
        "| module | mutants | killed | by time | survived |",
        "| --- | --- | --- | --- | --- |",
    ]
    for path, counts in (*counted.items(), ("all", sum(counted.values(), Counter()))):
        total, survived = counts.total(), counts["survived"]
        share = f" ({100 * (total - survived) / total:.1f} %)" if path == "all" else ""
        lines.append(
            f"| {path} | {total} | {total - survived}{share} | {counts['timed out']} | {survived} |"
        )
    return lines


if __name__ == "__main__":
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # trials end with this process
    code = main()
    print(f"\nin {time.monotonic() - began:.0f} s")
    sys.exit(code)
