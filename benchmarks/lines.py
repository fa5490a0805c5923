"""Lines of a run's output: none lost, none doubled, in order, and how many a second.

    .venv/bin/python -m benchmarks.lines --lines 10000000 --mpirun ROOT

A real supervisor and a real worker for each of 8 nodes are processes of this machine. The client
is gpuctl's, with its history, its copy of the journal, its parsers and its printing; only ssh is
left out. It is killed twice, and attached again each time. Then the lines that the last client
printed, and those of its copy, are counted and compared with what the ranks printed.

ROOT is a folder with a system that has Open MPI, such as the lab's image
`~/.cache/gpuctl/lab/frameworks-…`. The same ranks run there with `mpirun --tag-output`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.endless_line import peak_of
from cli.output import Output as Out
from cli.render.run import RunView
from engine.agent.journal.lines import WholeLines
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import Output
from engine.plan.remote_paths import RunPaths
from engine.record.history import History
from engine.record.journal_copy import recorded_events
from engine.session import head, session
from engine.session.bundle import agent_bundle
from tests.engine.conftest import TOOLS, LocalCluster, make_inventory, make_plan

RANKS = 8
REST = "loss 2.3457 grad_norm 0.8712 lr 3.0e-04 tokens/s 81234 mem 71.2 GiB"
_PRINTED = re.compile(rb"\[node(\d)\] (?:stdout: )?step (\d+): " + re.escape(REST).encode())


@dataclass
class Seen:
    """The count of lines that came in order, by rank, and of those out of place (`wrong`)."""

    lines: list[int] = field(default_factory=lambda: [0] * RANKS)
    wrong: int = 0

    def see(self, rank: int, number: int) -> None:
        """Count the line; it is wrong unless it is the rank's next."""
        self.wrong += number != self.lines[rank]
        self.lines[rank] = number + 1

    def check(self, each: int) -> None:
        """Raise AssertionError unless every rank's lines came once and in order."""
        assert (self.lines, self.wrong) == ([each] * RANKS, 0), self


def script(each: int) -> str:
    """Return a command that prints so many numbered lines."""
    text = f'printf "step %d: {REST}\\n", i'
    return f"awk 'BEGIN {{ for (i = 0; i < {each}; i++) {text} }}'"


class Peaks:
    """The largest resident sizes of processes, in MiB."""

    def __init__(self) -> None:
        self.of: dict[str, float] = {}

    def see(self, kind: str, pid: int) -> None:
        """Note the size of the process, unless it has ended."""
        with contextlib.suppress(OSError):
            self.of[kind] = max(self.of.get(kind, 0), peak_of(pid))


def supervise(folder: Path, each: int) -> None:
    """Run the job, and serve its followers; the supervisor's process."""
    os.environ["PATH"] = f"{TOOLS}:{os.environ['PATH']}"

    async def run() -> None:
        cluster = LocalCluster(folder)
        supervisor = cluster.supervisor(the_plan(each))
        server = await cluster.serve(supervisor)
        running = asyncio.ensure_future(supervisor.run())
        peaks = Peaks()
        while not running.done():
            await asyncio.sleep(0.2)
            for worker in cluster.launcher.processes.values():
                peaks.see("worker", worker.pid)
        assert running.result().status == "done", running.result()
        server.close()
        cluster.socket.unlink()
        cluster.journal.close()
        peaks.see("supervisor", os.getpid())
        (folder / "peaks.json").write_text(json.dumps(peaks.of))

    asyncio.run(run())


def the_plan(each: int) -> LaunchPlan:
    """Return the run's plan."""
    return make_plan(nodes=RANKS, commands=(script(each),))


class Local:
    """Connections to a head that is this machine."""

    async def lines(self, node: object, command: str) -> AsyncIterator[str]:
        """Yield the lines of the command, as `Connections.lines` does."""
        process = await asyncio.create_subprocess_shell(
            command, stdout=subprocess.PIPE, limit=1 << 22
        )
        assert process.stdout is not None
        while line := await process.stdout.readline():
            yield line.decode().rstrip("\n")


def use_local_head(folder: Path) -> None:
    """Let this machine be the head, with the run in `folder`."""

    @contextlib.asynccontextmanager
    async def connect(_: object) -> AsyncIterator[Local]:
        yield Local()

    patched: Any = head
    patched.connect = connect
    patched.run_paths = lambda *_: RunPaths(str(folder.parent), folder.name)


def follow(folder: Path, each: int) -> None:
    """Follow the run to its end and print it, as `gpuctl run` does; the client's process."""
    use_local_head(folder)
    plan = the_plan(each)
    view = RunView(plan, Out())
    runs = folder / "client"
    asyncio.run(session.follow(plan.run_id, make_inventory(RANKS), runs, view.event))


def own(*arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    """Start a process of this benchmark."""
    return subprocess.Popen([sys.executable, "-m", "benchmarks.lines", *arguments], **more)


def measure(lines: int, kills: int) -> dict[str, float]:
    """Run the job once; return seconds, and MiB of the processes. Lines are checked."""
    each = lines // RANKS
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as name:
        folder, peaks = Path(name), Peaks()
        runs = folder / "client"
        plan = the_plan(each)
        # the client's agent reads on when the supervisor's process has ended
        (folder / "agent.pyz").write_bytes(agent_bundle().data)
        with History(runs) as history:
            history.begin(plan)
        started = time.monotonic()
        supervising = own("--supervise", name, "--lines", str(lines))
        while not (folder / "supervisor.sock").exists():
            time.sleep(0.05)
        for number in range(kills):
            with attached(folder, lines, peaks) as client:
                assert client.stdout is not None
                read_lines(client.stdout, stop=(number + 1) * lines // (kills + 1))
                client.send_signal(signal.SIGKILL)
        with attached(folder, lines, peaks) as client:
            assert client.stdout is not None
            read_lines(client.stdout).check(each)
        took = time.monotonic() - started
        assert supervising.wait() == 0
        copied(runs, plan.run_id).check(each)
        peaks.of.update(json.loads((folder / "peaks.json").read_text()))
        return {"seconds": took, **peaks.of}


@contextlib.contextmanager
def attached(folder: Path, lines: int, peaks: Peaks) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a client that follows the run; note its size until it ends."""
    with own("--follow", str(folder), "--lines", str(lines), stdout=subprocess.PIPE) as client:

        def watch() -> None:
            while client.poll() is None:
                peaks.see("client", client.pid)
                time.sleep(0.2)

        watching = threading.Thread(target=watch)
        watching.start()
        yield client
        watching.join()


def read_lines(printed: Iterable[bytes], stop: int | None = None) -> Seen:
    """Read printed lines, at most `stop`."""
    seen, count = Seen(), 0
    for line in printed:
        found = _PRINTED.match(line)
        if found:
            seen.see(int(found[1]), int(found[2]))
            count += 1
            if count == stop:
                break
    return seen


def copied(runs: Path, run_id: str) -> Seen:
    """Read the client's copy of the journal."""
    seen, whole = Seen(), WholeLines()
    for event in recorded_events(runs, run_id):
        if isinstance(event, Output):
            for line in whole.feed(event):
                seen.see(line.rank, int(line.text[5 : line.text.index(":")]))
    return seen


def measure_mpirun(root: Path, lines: int) -> tuple[float, int]:
    """Run the same ranks with `mpirun --tag-output` in the system at `root`.

    Return seconds, and how many lines did not follow the line before of their rank.
    """
    each = lines // RANKS
    command = f"mpirun --allow-run-as-root --oversubscribe --tag-output -n {RANKS} sh /ranks"
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as folder:
        inside = f"""set -e
mount -t tmpfs tmpfs {folder}
cd {folder}; mkdir up work system
mount -t overlay overlay -o lowerdir={root},upperdir=up,workdir=work system
mount --rbind /dev system/dev; mount -t proc proc system/proc; mount -t tmpfs tmpfs system/tmp
cat > system/ranks
exec chroot system {command}"""
        started = time.monotonic()
        process = subprocess.Popen(
            ["unshare", "--mount", "bash", "-c", inside],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(script(each).encode())
        process.stdin.close()
        seen = Seen()
        for line in process.stdout:
            found = re.match(rb"\[1,(\d)\]<stdout>:\s?step (\d+): ", line)
            if found:
                seen.see(int(found[1]), int(found[2]))
        took = time.monotonic() - started
        assert process.wait() == 0
        return took, seen.wrong


def main() -> None:
    """A table on stdout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lines", type=int, default=10_000_000, help="of all ranks")
    parser.add_argument("--kills", type=int, default=2, help="how often the client is killed")
    parser.add_argument("--mpirun", type=Path, metavar="ROOT", help="a system with Open MPI")
    parser.add_argument("--supervise", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--follow", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    each = arguments.lines // RANKS
    if arguments.supervise:
        supervise(arguments.supervise, each)
        return
    if arguments.follow:
        follow(arguments.follow, each)
        return
    print("                  seconds  lines/s  supervisor MiB  worker MiB  client MiB")
    for kills in sorted({0, arguments.kills}):
        seen = measure(arguments.lines, kills)
        rate = arguments.lines / seen["seconds"]
        print(
            f"client killed {kills}x {seen['seconds']:9.1f} {rate:8,.0f}"
            f" {seen['supervisor']:15.0f} {seen['worker']:11.0f} {seen['client']:11.0f}",
            flush=True,
        )
    if arguments.mpirun:
        took, wrong = measure_mpirun(arguments.mpirun, arguments.lines)
        rate = arguments.lines / took
        print(f"mpirun           {took:9.1f} {rate:8,.0f}  out of order or torn: {wrong}")


if __name__ == "__main__":
    main()
