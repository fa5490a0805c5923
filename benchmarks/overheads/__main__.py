"""What gpuctl's commands cost, against what people use by hand, in the same run.

    sudo .venv/bin/python -m benchmarks.overheads [--json] [--only NAME …]

Starts the lab with 8 nodes and stops it at the end; needs root, and for `exec` the Debian packages
pdsh, clustershell and ansible-core. Best of 5, gpuctl and its peers in turn. NAME is the beginning
of rows' names: `run`, `exec-8`, `exec-64`, `plan`, `up`.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from benchmarks.overheads import clusters, execs, runs
from benchmarks.overheads.row import Row, as_json, as_table
from benchmarks.overheads.simulated import simulated
from benchmarks.overheads.site import Missing, Site, site

NODES = 8
MANY = 64


def main() -> None:
    """Measure and print what was asked for, as a table or as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="rows named so")
    arguments = parser.parse_args()
    rows = list(measure(arguments.only))
    print(json.dumps(as_json(rows), indent=2) if arguments.json else as_table(rows))


def measure(only: Iterable[str]) -> Iterator[Row]:
    """Yield the rows whose names begin with one of `only`; all of them where it is empty."""
    wanted = tuple(only)
    in_cluster: dict[str, Callable[[Site], list[Row]]] = {
        "run": runs.rows,
        f"exec-{NODES}": execs.rows,
        f"exec-{MANY}": _of_many,
    }
    alone = {"plan": clusters.plan_rows, "up": clusters.up_rows}
    for group, measured in alone.items():
        if _is_asked(group, wanted):
            with _named(group):
                yield from (row for row in measured() if _is_asked(row.name, wanted))
    asked = {group: rows for group, rows in in_cluster.items() if _is_asked(group, wanted)}
    if not asked:
        return
    with site(NODES) as here:
        for group, rows in asked.items():
            with _named(group):
                yield from (row for row in rows(here) if _is_asked(row.name, wanted))


def _of_many(here: Site) -> list[Row]:
    with simulated(here, MANY) as many:
        return execs.rows(many)


def _is_asked(name: str, wanted: tuple[str, ...]) -> bool:
    """Whether the group or row is one of those wanted, a part of one, or has one in it."""
    return not wanted or any(name.startswith(w) or w.startswith(name) for w in wanted)


@contextmanager
def _named(group: str) -> Iterator[None]:
    """Say on stderr what is missing for the rows of a group; the others are measured."""
    print(f"measuring {group} …", file=sys.stderr, flush=True)
    try:
        yield
    except Missing as missing:
        print(f"not measured: {group}: {missing}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
