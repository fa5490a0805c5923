"""How long gpuctl's `plan` and `up` take, against a bare Pulumi program of the same resources.

    .venv/bin/python -m benchmarks.fleet                    # 2, 8 and 64 nodes
    .venv/bin/python -m benchmarks.fleet --nodes 512        # some minutes more

Each command is a process of its own, imports included (`benchmarks.ours`, `benchmarks.bare`). Both
act on the lab's API, by the same engine and provider, each in a region of its own that has nothing
in it, in turn (A B B A …), so that a machine that slows down slows both. No machine boots: `up` is
everything but waiting for the nodes, the preview included. Medians, wall time.
"""

import argparse
import base64
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overheads.site import environment_of
from config.cluster.cluster_file import Cluster
from config.progress import silent
from config.target import Target
from infra.program.subnets import carve
from infra.stack.installation import find_engine
from provision.preflight.preflight import resolve
from provision.state.store import ClusterStore
from tests.infra.region import region

INSTANCE_TYPE = "p4d.24xlarge"

REPETITIONS = {2: 5, 8: 5, 64: 3}
"""By number of nodes; a larger fleet comes up once."""

Way = Callable[[int, Target, Path], list[str]]
"""Returns the command for so many nodes, without `plan` or `up`; it may write files to a folder."""


@dataclass(frozen=True)
class Took:
    """Seconds of one cluster's `plan`, and of its `up`."""

    plan: float
    up: float


def gpuctl(nodes: int, target: Target, folder: Path) -> list[str]:
    """Return gpuctl's command, which asks AWS everything first."""
    cluster, place = folder / "fleet.yaml", folder / "target.json"
    cluster.write_text(f"name: fleet\nnodes: {nodes}\ninstance_type: {INSTANCE_TYPE}\n")
    place.write_text(json.dumps({**vars(target), "state": str(target.state)}))
    return ["benchmarks.ours", str(cluster), str(place)]


def bare(nodes: int, target: Target, folder: Path) -> list[str]:
    """Return the bare program's command; its author knew every answer."""
    values, state = folder / "values.json", folder / "state"
    state.mkdir()
    values.write_text(json.dumps(bare_values(nodes, target)))
    return ["benchmarks.bare", str(values), str(state)]


def bare_values(nodes: int, target: Target) -> dict[str, object]:
    """Return the values that a person would write into the bare program."""
    resolved = resolve(
        Cluster.model_validate({"name": "fleet", "nodes": nodes, "instance_type": INSTANCE_TYPE}),
        ClusterStore(target),
    )
    cidr = resolved.cluster.network.cidr
    subnets = carve(cidr)
    return {
        "nodes": nodes,
        "region": target.region,
        "zone": resolved.zone,
        "cidr": cidr,
        "public": str(subnets.public),
        "private": str(subnets.private),
        "ssh_from": resolved.ssh_from,
        "public_key": resolved.public_key,
        "instance_type": resolved.instance_type.name,
        "interfaces": [interface.model_dump() for interface in resolved.interfaces],
        "image": resolved.image.id,
        "root_device": resolved.image.root_device,
        "gib": resolved.cluster.storage.root.gib,
        "user_data": base64.b64encode(resolved.user_data.encode()).decode(),
        "bastion_type": resolved.bastion_type,
        "bastion_image": resolved.bastion_image.id,
        "bastion_user_data": base64.b64encode(resolved.bastion_user_data.encode()).decode(),
        "tags": resolved.tags,
        "environment": {
            "PULUMI_DEBUG_PROVIDERS": f"aws:{(target.provider_address or '').rpartition(':')[2]}",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            **target.environment,
        },
    }


def took(way: Way, nodes: int, engine: Path) -> Took:
    """Run the way's `plan`, and its `up` in another region; return the seconds of both."""
    seconds = []
    for what in ("plan", "up"):
        with tempfile.TemporaryDirectory() as name, region(Path(name)) as here:
            module, *files = way(nodes, here.target, Path(name))
            path = f"{engine.parent}{os.pathsep}{os.environ['PATH']}"
            started = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", module, what, *files],
                env={**environment_of(Path(name)), "PATH": path},
                stdout=subprocess.DEVNULL,
                check=True,
            )
            seconds.append(time.perf_counter() - started)
    plan, up = seconds
    return Took(plan, up)


def measure(nodes: int, times: int, engine: Path) -> tuple[list[Took], list[Took]]:
    """Measure gpuctl and the bare program in turn; return the times of each, in that order."""
    ours: list[Took] = []
    theirs: list[Took] = []
    for repetition in range(times):
        pair = ((gpuctl, ours), (bare, theirs))
        for way, results in pair if repetition % 2 == 0 else reversed(pair):
            results.append(took(way, nodes, engine))
    return ours, theirs


def show(nodes: int, ours: Sequence[Took], theirs: Sequence[Took]) -> None:
    """Print two lines: medians, their ratio, and what gpuctl adds."""
    for name in ("plan", "up"):
        a, b = (statistics.median(getattr(t, name) for t in each) for each in (ours, theirs))
        line = f"{nodes:5} {name:4} {a:8.2f} {b:8.2f} {a / b:6.2f} {a - b:+8.2f} {len(ours):4}"
        print(line, flush=True)


def main() -> None:
    """Print a table, a line for each size and command as soon as it is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", default="2,8,64", help="sizes, such as 2,8,64,512")
    parser.add_argument("--times", type=int, help="repetitions, whatever the size")
    arguments = parser.parse_args()
    engine = find_engine(silent).path
    print("nodes what   gpuctl     bare  ratio     adds  n")
    for nodes in map(int, arguments.nodes.split(",")):
        times = arguments.times or REPETITIONS.get(nodes, 1)
        show(nodes, *measure(nodes, times, engine))


if __name__ == "__main__":
    main()
