"""A job that prints without a newline, from its pipe to the client: time and memory by its size.

    .venv/bin/python -m benchmarks.endless_line --mib 64,256,1024

A real worker and a real supervisor are processes of this machine; the client reads the journal as
`gpuctl logs` and `gpuctl run` do. Each size has processes of its own, whose largest resident sizes
are shown. The disk needs twice the largest size.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.agent.journal.lines import WholeLines
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import Output
from engine.record.journal_copy import recorded_events
from engine.record.result import ResultCollector, TableCollector
from tests.engine.conftest import TOOLS, LocalCluster, make_plan


def run_job(mib: int) -> dict[str, float]:
    """Run a job that prints so many MiB; return seconds and MiB of supervisor and worker."""
    os.environ["PATH"] = f"{TOOLS}:{os.environ['PATH']}"
    plan = make_plan(nodes=1, commands=(f"head -c {mib << 20} /dev/zero | tr '\\0' x",))
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as runs:
        folder = Path(runs) / plan.run_id
        folder.mkdir()
        cluster = LocalCluster(folder)
        started = time.monotonic()
        node = asyncio.run(followed(cluster, plan))
        ran, head = time.monotonic(), own_peak()
        read = subprocess.run(
            [sys.executable, "-m", "benchmarks.endless_line", "--read", runs],
            check=True,
            capture_output=True,
        )
        client = json.loads(read.stdout)
        assert client["characters"] == mib << 20
        return {"run": ran - started, "head": head, "node": node, **client}


async def followed(cluster: LocalCluster, plan: LaunchPlan) -> float:
    """Run the plan to its end; return the largest resident size of the worker in MiB."""
    running, largest = asyncio.ensure_future(cluster.supervisor(plan).run()), 0.0
    while not running.done():
        await asyncio.sleep(0.05)
        for worker in cluster.launcher.processes.values():
            with contextlib.suppress(OSError):  # it has ended
                largest = max(largest, peak_of(worker.pid))
    assert running.result().status == "done", running.result()
    return largest


def read_journal(runs: Path) -> dict[str, float]:
    """Read the journal as a client does; return seconds, MiB, and the characters of all lines."""
    started, characters = time.monotonic(), 0
    lines, tables, result = WholeLines(), TableCollector(), ResultCollector()
    for event in recorded_events(runs, make_plan().run_id):
        tables.feed(event)
        result.see(event)
        if isinstance(event, Output):
            characters += sum(len(line.text) for line in lines.feed(event))
    characters += sum(len(line.text) for line in lines.rest())
    took = time.monotonic() - started
    return {"read": took, "client": own_peak(), "characters": characters}


def peak_of(pid: int) -> float:
    """Return the largest resident size so far of another process in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def own_peak() -> float:
    """Return the largest resident size of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """A table on stdout, a line for each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", default="64,256,1024", help="sizes, such as 64,256,1024")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        print(json.dumps(read_journal(arguments.read)))
        return
    if arguments.one:
        print(json.dumps(run_job(arguments.one)))
        return
    print("  MiB   run s  read s  s/GiB  head MiB  node MiB  client MiB")
    for mib in map(int, arguments.mib.split(",")):
        own = [sys.executable, "-m", "benchmarks.endless_line", "--one", str(mib)]
        seen = json.loads(subprocess.run(own, check=True, capture_output=True).stdout)
        each = (seen["run"] + seen["read"]) * 1024 / mib
        print(
            f"{mib:5} {seen['run']:7.2f} {seen['read']:7.2f} {each:6.1f}"
            f" {seen['head']:9.0f} {seen['node']:9.0f} {seen['client']:11.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
