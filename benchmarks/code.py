"""How quickly code gets to nodes, against clush and rsync, and how quickly the second time.

    sudo .venv/bin/python -m benchmarks.code [--nodes 8] [--mib 1024] [--files 10000]

Starts the default lab, and stops it at the end. Prints the load of the machine before and after.
`first-…`: a folder of `--mib` MiB goes to all nodes, against `clush --copy` and a loop of rsync, in
the same run. `second-…`: a folder of `--files` small files that all nodes have already goes again;
2 s are wanted. Needs the Debian packages clustershell and rsync here (a row without its program is
left out); rsync is installed on the nodes before it is measured. Each first copy has other random
bytes, and each is measured once. At its end every node has four times `--mib` on the disk.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.overheads.row import Row, as_table
from benchmarks.overheads.site import NotMeasured, Site, require, site
from config.folded_names import fold
from config.progress import silent
from config.run.run_file import Task
from config.run.sources import folder_sources
from engine.plan.launch_plan import launch_plan, new_run_id
from engine.plan.source_tree import tree_of
from engine.session.code_transfer import send_tree

WANTED = 1.0  # ahead of them
SECOND_S = 2.0
FILES = 16  # of a large folder


def main() -> None:
    """Print a table; what cannot be measured is reported on stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--files", type=int, default=10_000)
    given = parser.parse_args()
    print(f"load before: {_load()}", file=sys.stderr)
    with site(given.nodes) as here, tempfile.TemporaryDirectory() as folder:
        rows = [second(here, Path(folder), given.files)]
        for name, peer in (("clush", clush), ("rsync", rsync)):
            try:
                rows.append(first(here, Path(folder), given.mib, name, peer))
                print(as_table(rows[-1:]), file=sys.stderr)  # the next may take minutes
            except NotMeasured as reason:
                print(f"not measured: {name}: {reason}", file=sys.stderr)
        print(as_table(rows))
        print(f"load after: {_load()}", file=sys.stderr)


def send(here: Site, folder: Path) -> float:
    """Return the seconds in which gpuctl reads, hashes and sends the folder to all nodes."""
    started = time.perf_counter()
    tree = tree_of(folder_sources(folder))
    fields = {"type": "task", "name": "code", "nodes": len(here.inventory.nodes)}
    run = Task.model_validate({**fields, "workdir": ".", "commands": ("true",)})
    plan = launch_plan(run, here.inventory, new_run_id("code"), tree)
    asyncio.run(send_tree(tree, plan, here.inventory, silent))
    return time.perf_counter() - started


def second(here: Site, folder: Path, files: int) -> Row:
    """Measure a folder that all nodes have: the time that is wanted is the peer."""
    many = folder / "many"
    for number in range(files):
        path = many / f"d{number // 100}" / f"f{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"print({number})\n" * 20)
    send(here, many)
    ours = min(send(here, many) for _ in range(3))
    return Row(f"second-{files}", ours, SECOND_S, "wanted", 1.0)


def first(
    here: Site, folder: Path, mib: int, name: str, peer: Callable[[Site, Path], float]
) -> Row:
    """Measure a folder that no node has: once by gpuctl, once by the peer."""
    label = f"first-{mib}-{len(here.inventory.nodes)}-{name}"
    mine, theirs = (_random_folder(folder / f"{label}-{who}", mib) for who in ("mine", "theirs"))
    try:
        return Row(label, send(here, mine), peer(here, theirs), name, WANTED)
    finally:
        shutil.rmtree(mine)
        shutil.rmtree(theirs)


def clush(here: Site, folder: Path) -> float:
    """Copy by `clush --copy`: all nodes at once, each from this machine."""
    require("clush", "clustershell")
    names = fold(node.name for node in here.inventory.nodes)
    count = str(len(here.inventory.nodes))
    options = ["-f", count, "-o", f"-F {here.ssh_config(kept=False)}", "-w", names]
    return here.run(["clush", *options, "--copy", str(folder), "--dest", "/root/"])


def rsync(here: Site, folder: Path) -> float:
    """Copy by a loop of rsync, a node after the other, as a script does it."""
    require("rsync", "rsync")
    install = "apt-get -qq update && apt-get -qq install --yes rsync > /dev/null"
    here.run(here.gpuctl("exec", "bench", "--", install))
    ssh = f"ssh -F {here.ssh_config(kept=False)}"
    return sum(
        here.run(["rsync", "-a", "-e", ssh, str(folder), f"{node.name}:/root/"])
        for node in here.inventory.nodes
    )


def _load() -> str:
    """Return the load of the machine over 1, 5 and 15 minutes."""
    return " ".join(f"{load:.1f}" for load in os.getloadavg())


def _random_folder(folder: Path, mib: int) -> Path:
    folder.mkdir()
    for number in range(FILES):
        (folder / f"part-{number}").write_bytes(os.urandom((mib << 20) // FILES))
    return folder


if __name__ == "__main__":
    main()
