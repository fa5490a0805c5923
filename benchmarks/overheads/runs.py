"""`gpuctl run` against ssh to the head and mpirun there."""

import json
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.overheads.row import TIMES, Row, best_of
from benchmarks.overheads.site import Site, require

SLOTS = 2  # per node: 16 ranks on 8 nodes
PEER = "ssh HEAD mpirun -np {ranks} date"
HOSTFILE = "/root/bench-hostfile"


def rows(site: Site) -> list[Row]:
    """Measure to the first line of the slowest: of 8 nodes (`run`), of 16 ranks (`run-mpi`)."""
    require("ssh", "openssh-client")
    nodes = len(site.inventory.nodes)
    ranks = SLOTS * nodes
    config = site.ssh_config(kept=False)
    _write_hostfile(site, config)
    mpirun = f"mpirun --allow-run-as-root --hostfile {HOSTFILE} -np {ranks} date"
    peer = ["ssh", "-F", str(config), "node0", mpirun]
    task = _file(site, "task", nodes)
    mpi = _file(site, "mpi", nodes, procs_per_node=SLOTS)
    ours, ours_mpi, theirs = best_of(
        TIMES,
        lambda: site.until(_command(site, task), every_node(nodes)),
        lambda: site.until(_command(site, mpi), lines_of_date(ranks)),
        lambda: site.until(peer, lines_of_date(ranks)),
    )
    name = PEER.format(ranks=ranks)
    return [
        Row("run", ours, theirs, name, 1.3),
        Row("run-mpi", ours_mpi, theirs, name, 1.6),
    ]


def every_node(nodes: int) -> Callable[[str], bool]:
    """Return a test that is true at the line with which every node has printed one."""
    missing = {f"[node{rank}]" for rank in range(nodes)}

    def seen(line: str) -> bool:
        missing.discard(line.partition(" ")[0])
        return not missing

    return seen


def lines_of_date(ranks: int) -> Callable[[str], bool]:
    """Return a test that is true at the line with which so many have printed the date."""
    count = 0

    def seen(line: str) -> bool:
        nonlocal count
        count += " UTC " in line
        return count == ranks

    return seen


def _command(site: Site, file: Path) -> Sequence[str]:
    return site.gpuctl("run", str(file), "--cluster", site.inventory.cluster)


def _file(site: Site, kind: str, nodes: int, **fields: object) -> Path:
    path = site.folder / f"{kind}.yaml"
    run = {"type": kind, "name": kind, "nodes": nodes, "commands": ["date"]} | fields
    path.write_text(json.dumps(run))
    return path


def _write_hostfile(site: Site, config: Path) -> None:
    text = "".join(f"{node.name} slots={SLOTS}\n" for node in site.inventory.nodes)
    write = f"printf %s {shlex.quote(text)} > {HOSTFILE}"
    subprocess.run(["ssh", "-F", str(config), "node0", write], check=True)
