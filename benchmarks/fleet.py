"""How long gpuctl's `plan` and `up` take, against a bare Pulumi program of the same resources.

    .venv/bin/python -m benchmarks.fleet                    # 2, 8 and 64 nodes
    .venv/bin/python -m benchmarks.fleet --nodes 512        # some minutes more
    .venv/bin/python -m benchmarks.fleet --booted --nodes 2,8    # root: real machines of the lab

Both act on the lab's API, by the same engine and provider, each in a region of its own that has
nothing in it, in turn (A B B A …), so that a machine that slows down slows both. No machine boots:
`up` is everything but waiting for the nodes. Medians, wall time.

With `--booted` the whole `up` ends with nodes that are ready for a job, while the bare program
ends when EC2 says `running`: the difference is the boot and cloud-init.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from benchmarks import bare
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.progress import Reporter, silent
from config.target import Target
from infra.fleet import Fleet
from infra.pulumi_engine.installation import Engine, find_engine
from lab import lifecycle
from lab.places import DEFAULT, Places
from nodes.inventory import Inventory
from provision import spares, up
from provision.aws import clients
from provision.preflight.preflight import resolve
from provision.setup.bootstrap import inventory_of
from tests.infra.region import REGION, region

INSTANCE_TYPE = "p4d.24xlarge"
Place = Callable[[], AbstractContextManager[Target]]
Way = Callable[[Cluster, Target, Engine], "Took"]

REPETITIONS = {2: 5, 8: 5, 64: 3}
"""By number of nodes; a larger fleet comes up once."""


@dataclass(frozen=True)
class Took:
    """Seconds of one cluster's `plan` and `up`."""

    plan: float
    up: float


def ours(cluster: Cluster, target: Target, engine: Engine) -> Took:
    """By gpuctl, which looks for its engine and asks AWS everything first."""
    del engine
    resolve(cluster, target)  # AWS is always warm; the lab reads its tables at the first question
    clients.forget_clients()  # a command makes its own
    started = time.perf_counter()
    planned = up.plan(cluster, target, silent)
    between = time.perf_counter()
    up.up(planned, target, silent)
    return Took(between - started, time.perf_counter() - between)


def theirs(cluster: Cluster, target: Target, engine: Engine) -> Took:
    """By the bare program, whose author knew every answer."""
    with tempfile.TemporaryDirectory() as state:
        stack = bare.stack(resolve(cluster, target), target, engine, Path(state))
        started = time.perf_counter()
        stack.preview()
        between = time.perf_counter()
        stack.up()
        return Took(between - started, time.perf_counter() - between)


@contextmanager
def unbooted() -> Iterator[Target]:
    """A region with nothing in it, where instances run at once and nothing boots."""

    def nothing_boots(
        resolved: Resolved, fleet: Fleet, folder: Path, target: Target, report: Reporter
    ) -> Inventory:
        del target, report
        return inventory_of(resolved, fleet, folder)

    with (
        tempfile.TemporaryDirectory() as state,
        region(Path(state)) as here,
        mock.patch.object(spares, "bootstrap", nothing_boots),
    ):
        yield here.target


@contextmanager
def booted() -> Iterator[Target]:
    """The lab with nothing in it and with machines; it is stopped at the end."""
    places = Places(DEFAULT)
    if lifecycle.status(places).up:
        raise SystemExit("a lab is running, and would be stopped: end it with `gpuctl lab stop`")
    lifecycle.start(places, silent)
    try:
        yield lifecycle.target(places, REGION)
    finally:
        lifecycle.stop(places, silent)


def measure(nodes: int, place: Place, times: int, engine: Engine) -> tuple[list[Took], list[Took]]:
    """What gpuctl took, and what the bare program took, in turn and each in a fresh place."""
    cluster = Cluster.model_validate(
        {"name": "fleet", "nodes": nodes, "instance_type": INSTANCE_TYPE}
    )
    took: dict[Way, list[Took]] = {ours: [], theirs: []}
    for repetition in range(times):
        for way in (ours, theirs) if repetition % 2 == 0 else (theirs, ours):
            with place() as target:
                took[way].append(way(cluster, target, engine))
    return took[ours], took[theirs]


def show(nodes: int, gpuctl: Sequence[Took], pulumi: Sequence[Took]) -> None:
    """Two lines: medians, their ratio, and what gpuctl adds."""
    for name in ("plan", "up"):
        a, b = (statistics.median(getattr(t, name) for t in took) for took in (gpuctl, pulumi))
        line = f"{nodes:5} {name:4} {a:8.2f} {b:8.2f} {a / b:6.2f} {a - b:+8.2f} {len(gpuctl):4}"
        print(line, flush=True)


def main() -> None:
    """A table on stdout, a line for each size and command as soon as it is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", default="2,8,64", help="sizes, such as 2,8,64,512")
    parser.add_argument("--times", type=int, help="repetitions, whatever the size")
    parser.add_argument("--booted", action="store_true", help="machines of the lab boot (root)")
    arguments = parser.parse_args()
    engine = find_engine(silent)
    place = booted if arguments.booted else unbooted
    measure(1, unbooted, 1, engine)  # the first imports the AWS classes
    print("nodes what   gpuctl     bare  ratio     adds  n")
    for nodes in map(int, arguments.nodes.split(",")):
        times = arguments.times or (1 if arguments.booted else REPETITIONS.get(nodes, 1))
        show(nodes, *measure(nodes, place, times, engine))


if __name__ == "__main__":
    main()
