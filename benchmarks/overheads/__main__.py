"""What gpuctl's commands cost, against what people use by hand, in the same run.

    sudo .venv/bin/python -m benchmarks.overheads [--json] [--only NAME …]

Starts the lab with 8 nodes and stops it at the end, which needs root; `exec-64` needs sshd alone.
For `exec` the Debian packages pdsh, clustershell and ansible-core have to be there. Best of 5,
gpuctl and its peers in turn. NAME is the beginning of rows' names: `run`, `exec-8`, `exec-64`,
`up`.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from benchmarks.overheads import clusters, execs, runs
from benchmarks.overheads.row import Row, as_json, as_table
from benchmarks.overheads.simulated import simulated
from benchmarks.overheads.site import NotMeasured, site

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
    if _is_asked("up", wanted):
        yield from _measured("up", clusters.up_rows, wanted)
    if _is_asked(f"exec-{MANY}", wanted):
        with simulated(MANY) as many:
            yield from _measured(f"exec-{MANY}", partial(execs.rows, many), wanted)
    in_lab = {"run": runs.rows, f"exec-{NODES}": execs.rows}
    asked = {group: rows for group, rows in in_lab.items() if _is_asked(group, wanted)}
    if asked:
        with site(NODES) as here:
            for group, rows in asked.items():
                yield from _measured(group, partial(rows, here), wanted)


def _measured(
    group: str, rows: Callable[[], Iterable[Row]], wanted: tuple[str, ...]
) -> Iterator[Row]:
    """Yield a group's rows; what cannot be measured is said on stderr, and the others go on."""
    print(f"measuring {group} …", file=sys.stderr, flush=True)
    try:
        found = [row for row in rows() if _is_asked(row.name, wanted)]
    except NotMeasured as reason:
        print(f"not measured: {group}: {reason}", file=sys.stderr, flush=True)
        return
    print(as_table(found), file=sys.stderr, flush=True)
    yield from found


def _is_asked(name: str, wanted: tuple[str, ...]) -> bool:
    """Return whether the group or row is one of those wanted, part of one, or contains one."""
    return not wanted or any(name.startswith(w) or w.startswith(name) for w in wanted)


if __name__ == "__main__":
    main()
