"""The client's side against the real agent on this machine: ship, start, follow, stop."""

import asyncio
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from config.errors import NodeError, RunError
from engine.agent.journal.clock import steady
from engine.agent.journal.run_folders import AGE_S, USED, mark_used
from engine.agent.journal.run_secrets_file import (
    HOLDS_S,
    handover_path,
    remove_handover,
    write_handover,
)
from engine.contract.event import Event
from engine.contract.head_events import HeadUnreachable, RunQueued, RunStarted
from engine.contract.names import QUEUE
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import Output
from engine.plan.launch_plan import launch_plan, new_run_id
from engine.record.history import History
from engine.record.journal_copy import evidence_folder, recorded_events
from engine.record.result import RunResult
from engine.record.run_errors import RunGoesOn, RunLost
from engine.session import session
from engine.session.bundle import agent_bundle, ship_agent
from engine.session.cluster_runs import Holder, drop_run, find_holders, move_run, node_load
from engine.session.following import Limits
from engine.session.head import ClusterBusy
from nodes.answers import Completed
from nodes.conversation import Conversation
from nodes.inventory import REMOTE_ROOT, Inventory, Node
from tests.connections import Connect, WithoutSsh
from tests.engine.conftest import (
    TOOLS,
    command_lines,
    end_jobs,
    make_inventory,
    make_run,
    unpacked_agent,
)

pytestmark = pytest.mark.slow


class LocalConnections(WithoutSsh):
    """Commands for nodes, executed on this machine, on which `root` is /var/lib/gpuctl."""

    cut_after: int | None = None
    """Lines after which the connection breaks."""

    stays_cut = False
    """Whether it breaks each time."""

    broken_off: int = 0
    """Characters of the next line that still come."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def here(self, text: str) -> str:
        """Return the text with the paths of this machine."""
        return text.replace(REMOTE_ROOT, str(self.root))

    def run_folder(self, run_id: str) -> Path:
        return self.root / "runs" / run_id

    def end(self) -> None:
        """End the agents and their queue, as the nodes end with their cluster."""
        for pid, line in command_lines():
            if os.fsencode(self.root) in line:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        (self.root / "runs" / "queue").unlink(missing_ok=True)

    async def run(
        self,
        node: Node,
        command: str,
        *,
        stdin: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  the signature of Connections
    ) -> Completed:
        process = await asyncio.create_subprocess_shell(
            self.here(command), stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        try:
            out, complaints = await process.communicate(self.here(stdin or "").encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return Completed(process.returncode, out.decode(), complaints.decode())

    async def lines(self, node: Node, command: str) -> AsyncGenerator[str, None]:
        process = await asyncio.create_subprocess_shell(
            self.here(command), stdin=DEVNULL, stdout=PIPE, limit=1 << 20
        )
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                if self.cut_after == 0:
                    self.cut_after = 0 if self.stays_cut else None
                    yield line.decode()[: self.broken_off]
                    raise NodeError("node0: the connection was lost", "")
                if self.cut_after is not None:
                    self.cut_after -= 1
                yield line.decode().rstrip("\n")
        finally:
            if process.returncode is None:
                process.kill()
            await process.stdout.read()
            await process.wait()

    @asynccontextmanager
    async def converse(self, node: Node, command: str) -> AsyncIterator[Conversation]:
        process = await asyncio.create_subprocess_shell(self.here(command), stdin=PIPE, stdout=PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        yield Conversation(process.stdin, process.stdout)
        process.stdin.close()
        await process.wait()


@pytest.fixture
def connections(
    monkeypatch: pytest.MonkeyPatch, reach_nodes: Callable[[Connect], None]
) -> Iterator[LocalConnections]:
    root = Path(tempfile.mkdtemp(prefix="gpuctl-"))
    connections = LocalConnections(root)
    reach_nodes(lambda _: connections)
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(root / "memory"))
    monkeypatch.setenv("PATH", f"{TOOLS}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    yield connections
    queue = root / "runs" / "queue"
    assert not queue.exists() or queue.read_text() == "", "the cluster is free again"
    end_jobs(root)
    shutil.rmtree(root)


def on_this_machine(inventory: Inventory) -> Inventory:
    """The inventory with addresses of this machine alone, to which heartbeats can go."""
    nodes = (n.model_copy(update={"private_ip": f"127.0.0.{n.rank + 10}"}) for n in inventory.nodes)
    return inventory.model_copy(update={"nodes": tuple(nodes)})


INVENTORY = on_this_machine(make_inventory(2))
PAST = "2025-11-20T08:22:00Z"


def test_the_agent_is_on_the_head_whole_and_is_not_sent_twice(
    connections: Any,
) -> None:
    bundle = agent_bundle()
    asyncio.run(ship_agent(connections, INVENTORY))
    archive = Path(connections.here(f"{bundle.path(INVENTORY)}.pyz"))
    assert archive.read_bytes() == bundle.data
    assert Path(connections.here(f"{bundle.path(INVENTORY)}/__main__.py")).exists()
    folder = Path(connections.here(bundle.path(INVENTORY)))
    assert sorted(archive.parent.iterdir()) == [folder, archive]
    sent = archive.stat().st_mtime_ns
    asyncio.run(ship_agent(connections, INVENTORY))
    assert archive.stat().st_mtime_ns == sent


def test_py_spy_is_with_the_agent_of_a_run_that_may_hang(connections: Any) -> None:
    bundle = agent_bundle(with_stacks=True)
    asyncio.run(ship_agent(connections, INVENTORY, bundle))
    folder = Path(connections.here(bundle.path(INVENTORY)))
    version = importlib.metadata.version("py-spy")
    (folder / "py-spy").chmod(0o755)
    asked = subprocess.check_output([folder / "py-spy", "--version"], text=True)
    assert asked == f"py-spy {version}\n"
    assert not Path(connections.here(agent_bundle().path(INVENTORY)), "py-spy").exists()


def test_a_head_that_cannot_store_the_agent_is_an_error_with_the_reason(
    connections: Any,
) -> None:
    folder = Path(connections.here(agent_bundle().path(INVENTORY))).parent
    folder.rmdir()
    folder.write_text("no folder")
    with pytest.raises(RunError, match=r"^node0 \(127\.0\.0\.10\) cannot take gpuctl's agent: mk"):
        asyncio.run(ship_agent(connections, INVENTORY))
    folder.unlink()
    folder.mkdir()


def job(*commands: str, **fields: object) -> LaunchPlan:
    return launch_plan(make_run(commands=commands, **fields), INVENTORY, new_run_id("job"))


def text(events: list[Event], rank: int) -> list[str]:
    """The lines of the rank; an event may have many."""
    texts = [e.text for e in events if isinstance(e, Output) and e.rank == rank]
    return [line for text in texts for line in text.split("\n")]


def test_run_to_its_end(connections: LocalConnections, tmp_path: Path) -> None:
    meet = tmp_path / "meet"
    os.mkfifo(meet)  # node1, whose end stops node0, waits until that has printed
    plan = job(
        "echo '8 2 float sum -1 1 2 3 0 4 5 6 0'; echo bye",
        f"if [ $DSTACK_NODE_RANK = 0 ]; then echo > {meet}; else read _ < {meet}; exit 7; fi",
    )
    events: list[Event] = []
    result = asyncio.run(session.run(plan, INVENTORY, tmp_path, events.append))
    assert (result.status, result.exit_code, result.first_failed_node) == ("failed", 7, "node1")
    assert result.last_lines == ("8 2 float sum -1 1 2 3 0 4 5 6 0", "bye")
    assert list(recorded_events(tmp_path, plan.run_id)) == events
    with History(tmp_path) as history:
        assert history.find(plan.run_id).exit_code == 7
        tables = history.tables(plan.run_id)
    assert sorted(table.facts.rank for table in tables) == [0, 1]
    own = tables[0].rows[0].out_of_place
    assert own is not None
    assert own.busbw == 3


def test_a_new_run_removes_old_ones_that_were_read(
    connections: LocalConnections, tmp_path: Path
) -> None:
    first = job("echo first")
    asyncio.run(session.run(first, INVENTORY, tmp_path, lambda _: None))
    folder = connections.run_folder(first.run_id)
    assert {"journal.jsonl", "read", "rank-0.log"} <= {path.name for path in folder.iterdir()}
    unread = connections.run_folder("unread-0d1e00")
    unread.mkdir()
    (unread / "journal.jsonl").touch()
    mark_used(unread)
    long_ago = steady() - AGE_S - 60
    for folder_with_mark in (folder, unread):
        (mark,) = folder_with_mark.glob(f"{USED}*")
        os.utime(mark, (long_ago, long_ago))
    second = job("echo second")
    asyncio.run(session.run(second, INVENTORY, tmp_path, lambda _: None))
    kept = {path.name for path in folder.parent.iterdir() if path.is_dir()}
    assert kept == {"unread-0d1e00", second.run_id}
    assert list(recorded_events(tmp_path, first.run_id))  # the client's copy has an age of its own


def test_evidence_of_a_lost_node_comes_with_the_journal(
    connections: LocalConnections, tmp_path: Path
) -> None:
    """The files are here as they are on the head, and again where the journal is read again."""
    plan = job("if [ $DSTACK_NODE_RANK = 1 ]; then kill -9 $PPID; fi; sleep 1000")
    result = asyncio.run(session.run(plan, INVENTORY, tmp_path, lambda _: None))
    assert "node1" in result.reason  # both nodes are this machine: one may answer for the other
    there = connections.run_folder(plan.run_id) / "evidence" / "node1"
    here = evidence_folder(tmp_path, plan.run_id) / "node1"
    kept = {path.name: path.read_text() for path in there.iterdir()}
    assert "127.0.0.11" in kept["ping.txt"]
    assert {path.name: path.read_text() for path in here.iterdir()} == kept
    shutil.rmtree(here)
    asyncio.run(session.follow(plan.run_id, INVENTORY, tmp_path, lambda _: None))
    assert {path.name: path.read_text() for path in here.iterdir()} == kept


def test_secrets_reach_the_job_and_no_file(connections: LocalConnections, tmp_path: Path) -> None:
    value = "geheim-0123456789"
    plan = job("echo it is $TOKEN; echo ${#TOKEN}", env={"TOKEN": {"secret": "MY_TOKEN"}})
    events: list[Event] = []
    secrets = {"MY_TOKEN": value, "OTHER": "of nobody on the nodes"}
    result = asyncio.run(session.run(plan, INVENTORY, tmp_path, events.append, secrets))
    assert result.status == "done"
    assert text(events, 0) == text(events, 1) == ["it is ***", str(len(value))]
    assert not handover_path(connections.run_folder(plan.run_id)).exists()
    for folder in (tmp_path, connections.run_folder(plan.run_id).parents[1]):
        for path in folder.rglob("*"):
            assert not path.is_file() or value.encode() not in path.read_bytes()


@pytest.mark.parametrize("broken_off", [0, 40])
def test_lost_connection_repeats_and_loses_nothing(
    connections: LocalConnections, tmp_path: Path, broken_off: int
) -> None:
    plan = job("seq 1 200")
    events: list[Event] = []
    connections.cut_after, connections.broken_off = 77, broken_off
    result = asyncio.run(session.run(plan, INVENTORY, tmp_path, events.append))
    assert result.status == "done"
    for rank in (0, 1):
        assert text(events, rank) == [str(n) for n in range(1, 201)]


def test_ctrl_c_stops_the_run(connections: LocalConnections, tmp_path: Path) -> None:
    async def interrupt() -> None:
        seen = asyncio.Event()
        plan = job("trap 'echo saved; exit' TERM; echo runs; sleep 1000 & wait")
        events: list[Event] = []

        def see(event: Event) -> None:
            events.append(event)
            if text(events, 0) and text(events, 1):
                seen.set()

        running = asyncio.ensure_future(session.run(plan, INVENTORY, tmp_path, see))
        await seen.wait()
        running.cancel()
        result = await running
        assert (result.status, result.exit_code) == ("stopped", 130)
        assert text(events, 0) == text(events, 1) == ["runs", "saved"]

    asyncio.run(interrupt())


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (BrokenPipeError(), "nobody reads its output"),
        (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device"),
        (RunError("the journal cannot be written", "make room"), "the journal cannot be written"),
    ],
)
def test_trouble_of_the_clients_own_leaves_the_run_alone(
    connections: LocalConnections, tmp_path: Path, trouble: Exception, why: str
) -> None:
    plan = job("echo runs; sleep 1000")

    def see(event: Event) -> None:
        if isinstance(event, Output):
            raise trouble

    with pytest.raises(RunGoesOn) as left:
        asyncio.run(session.run(plan, INVENTORY, tmp_path, see))
    assert str(left.value) == (
        f"run {plan.run_id} goes on without this client: {why};"
        f" `gpuctl attach {plan.run_id}` follows it, `gpuctl stop {plan.run_id}` ends it"
    )
    assert asyncio.run(session.stop(plan.run_id, INVENTORY, tmp_path)).status == "stopped"


def test_a_head_that_does_not_answer_for_long_leaves_the_run_alone(
    connections: LocalConnections, tmp_path: Path
) -> None:
    connections.cut_after, connections.stays_cut = 1, True
    plan = job("sleep 1000")
    with pytest.raises(RunGoesOn, match="does not answer: node0: the connection was lost"):
        limits = Limits(reconnect_s=0)
        asyncio.run(session.run(plan, INVENTORY, tmp_path, lambda _: None, limits=limits))
    connections.cut_after = None
    assert asyncio.run(session.stop(plan.run_id, INVENTORY, tmp_path)).status == "stopped"


def test_a_run_is_lost_once_the_caller_knows_that_its_head_is_gone(
    connections: LocalConnections, tmp_path: Path
) -> None:
    connections.cut_after, connections.stays_cut = 1, True
    plan = job("sleep 1000")

    def see(event: Event) -> None:
        if isinstance(event, HeadUnreachable):
            assert event.reason == "node0: the connection was lost"
            raise RunLost.of(plan.run_id, "node0 was lost: its machine i-1 is stopped", "up")

    with pytest.raises(RunLost, match=f"run {plan.run_id}: node0 was lost: its machine i-1 is"):
        asyncio.run(session.run(plan, INVENTORY, tmp_path, see, limits=Limits(silent_s=0)))
    with History(tmp_path) as history:
        run = history.find(plan.run_id)
    assert (run.status, run.exit_code) == ("failed", 125)
    assert run.reason == "node0 was lost: its machine i-1 is stopped"
    connections.cut_after = None
    assert asyncio.run(session.stop(plan.run_id, INVENTORY, tmp_path)).status == "stopped"


def test_who_is_left_alone_is_told_what_ends_the_bill() -> None:
    plan = job("true", on_stop="destroy")
    assert RunGoesOn(plan, "x").hint.endswith(
        "; at its end the nodes power off: its log and metrics are lost then if no client has"
        " fetched them, and `gpuctl down demo` removes the rest"
    )
    saved = replace(plan, saved="/s/gpuctl/saved/job-000001", run_id="job-000001")
    assert RunGoesOn(saved, "x").hint.endswith(
        "; at its end the nodes power off: its log and metrics are copied to"
        " /s/gpuctl/saved/job-000001 before; `gpuctl up FILE` and `gpuctl attach job-000001` get"
        " them, `gpuctl down demo` deletes them"
    )


def test_busy_cluster(connections: LocalConnections, tmp_path: Path) -> None:
    async def both() -> None:
        began = asyncio.Event()
        first, second = job("sleep 1000"), job("true")
        running = asyncio.ensure_future(
            session.run(first, INVENTORY, tmp_path, lambda _: began.set())
        )
        await began.wait()
        with pytest.raises(ClusterBusy) as refused:
            await session.run(second, INVENTORY, tmp_path, lambda _: None)
        assert str(refused.value) == (
            f"cluster demo is busy with run {first.run_id}; wait for it (`gpuctl run --queue`,"
            f" `gpuctl wait {first.run_id}`) or stop it (`gpuctl stop {first.run_id}`)"
        )
        with History(tmp_path) as history:
            assert [record.run_id for record in history.runs()] == [first.run_id]
        assert (await session.stop(first.run_id, INVENTORY, tmp_path)).status == "stopped"
        assert (await running).status == "stopped"

    asyncio.run(both())


def test_follow_after_the_end_needs_no_cluster(
    connections: LocalConnections, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = job("echo hello")
    first: list[Event] = []
    again: list[Event] = []
    result = asyncio.run(session.run(plan, INVENTORY, tmp_path, first.append))
    monkeypatch.delattr("engine.session.head.connect")
    assert asyncio.run(session.follow(plan.run_id, INVENTORY, tmp_path, again.append)) == result
    assert again == first


@pytest.mark.parametrize("is_lost", [False, True], ids=["unreachable", "supervisor lost"])
def test_a_head_that_aws_took_back_is_named_and_not_waited_for(
    connections: LocalConnections,
    tmp_path: Path,
    is_lost: bool,
) -> None:
    """It has told its notice, and is not heard of any more a minute after its time."""
    plan = job("true")
    node = {"rank": 0, "name": "node0", "private_ip": "10.213.1.10", "role": "master"}
    notice = {"kind": "node_interrupted", "rank": 0, "action": "terminate", "at": PAST, "time": 2.0}
    started = {
        "kind": "run_started", "time": 1.0, "run_id": plan.run_id, "name": "job", "cluster": "demo",
        "startup_order": "any", "stop_criteria": "all-done", "on_stop": "keep", "nodes": [node],
    }  # fmt: skip
    folder = connections.run_folder(plan.run_id)
    folder.mkdir(parents=True)
    (folder / "agent.pyz").symlink_to(unpacked_agent())
    (folder / "journal.jsonl").write_text(f"{json.dumps(started)}\n{json.dumps(notice)}\n")
    if not is_lost:
        connections.cut_after, connections.stays_cut = 2, True
    with History(tmp_path) as history:
        history.begin(plan)
    with pytest.raises(RunError) as lost:
        asyncio.run(session.follow(plan.run_id, INVENTORY, tmp_path, lambda _: None))
    taken = f"node0 was lost: AWS took its spot instance back (terminate at {PAST})"
    assert str(lost.value) == f"run {plan.run_id}: {taken}; `gpuctl up` replaces it"
    with History(tmp_path) as history:
        record = history.find(plan.run_id)
    assert (record.status, record.reason) == ("failed", taken)


def test_the_head_says_which_run_is_on_the_cluster(
    connections: LocalConnections, tmp_path: Path
) -> None:
    async def ask() -> None:
        assert await find_holders(INVENTORY) == (), "no run was here yet"
        began = asyncio.Event()
        plan = job("sleep 1000")
        events: list[Event] = []

        def see(event: Event) -> None:
            events.append(event)
            began.set()

        running = asyncio.ensure_future(session.run(plan, INVENTORY, tmp_path, see))
        await began.wait()
        since = datetime.fromtimestamp(events[0].time, UTC)
        found = Holder(run_id=plan.run_id, state="started", nodes=("node0", "node1"), since=since)
        assert await find_holders(INVENTORY) == (found,)
        (connections.run_folder(plan.run_id) / "journal.jsonl").rename(tmp_path / "elsewhere")
        assert await find_holders(INVENTORY) == (found.model_copy(update={"since": None}),)
        (tmp_path / "elsewhere").rename(connections.run_folder(plan.run_id) / "journal.jsonl")
        await session.stop(plan.run_id, INVENTORY, tmp_path)
        await running
        assert await find_holders(INVENTORY) == ()

    asyncio.run(ask())


def test_a_head_that_does_not_say_who_holds_the_cluster_is_waited_for_some_seconds(
    connections: LocalConnections, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = connections.run_folder("job-0d1e00")
    folder.mkdir(parents=True)
    (folder / "agent.pyz").touch()
    (folder.parent / QUEUE).write_text(f"{folder.name} started node1\n")
    (tmp_path / "python3").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(NodeError) as silent:
        asyncio.run(find_holders(INVENTORY, 0.1))
    assert str(silent.value) == "node0 (127.0.0.10) did not answer within 0 s"

    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NodeError) as mute:
        asyncio.run(find_holders(INVENTORY))
    assert str(mute.value) == (
        "node0 (127.0.0.10) cannot report its runs: /bin/sh: 1: exec: python3: not found"
    )
    (folder.parent / QUEUE).unlink()


async def queued(
    plan: LaunchPlan, runs: Path, place: int, events: list[Event]
) -> asyncio.Task[RunResult]:
    """Start the plan with `--queue`; return its run when it waits at `place`."""
    waits = asyncio.Event()

    def see(event: Event) -> None:
        events.append(event)
        if isinstance(event, RunQueued) and event.place == place:
            waits.set()

    waiting = replace(plan, queue=True)
    running = asyncio.create_task(session.run(waiting, INVENTORY, runs, see))
    await waits.wait()
    return running


def test_runs_wait_in_a_queue_whose_order_can_be_changed(
    connections: LocalConnections, tmp_path: Path
) -> None:
    async def all_of_them() -> None:
        began = asyncio.Event()
        first, *others = (job("sleep 1000"), *(job("true", nodes=1) for _ in range(3)))
        second, third, fourth = others
        of: dict[str, list[Event]] = {plan.run_id: [] for plan in (second, third, fourth)}
        running = asyncio.create_task(
            session.run(first, INVENTORY, tmp_path, lambda _: began.set())
        )
        await began.wait()
        later = [
            await queued(plan, tmp_path, place, of[plan.run_id])
            for place, plan in enumerate((second, third, fourth), 1)
        ]
        with History(tmp_path) as history:
            statuses = {record.run_id: record.status for record in history.runs()}
        assert statuses == {first.run_id: "running", **dict.fromkeys(of, "queued")}
        assert await drop_run(second.run_id, INVENTORY)
        dropped = await later[0]
        assert (dropped.status, dropped.exit_code) == ("stopped", 130)
        assert dropped.reason == "dropped from the queue"
        assert [event.kind for event in of[second.run_id]] == ["run_queued", "run_finished"]
        assert not await drop_run(first.run_id, INVENTORY), "it runs"
        assert await move_run(fourth.run_id, INVENTORY, 1)
        waiting = [one.run_id for one in await find_holders(INVENTORY) if one.state == "waiting"]
        assert waiting == [fourth.run_id, third.run_id]
        with pytest.raises(ClusterBusy, match=f"with run {first.run_id} and 2 more; "):
            await session.run(job("true"), INVENTORY, tmp_path, lambda _: None)
        assert (await session.stop(first.run_id, INVENTORY, tmp_path)).status == "stopped"
        assert [(await one).status for one in (running, *later)] == [
            "stopped", "stopped", "done", "done",
        ]  # fmt: skip
        ends = [of[plan.run_id][-1].time for plan in (fourth, third)]
        begins = [e.time for e in of[third.run_id] if isinstance(e, RunStarted)]
        assert ends[0] <= begins[0]

    asyncio.run(all_of_them())


def test_a_run_whose_supervisor_was_killed_is_on_the_cluster(connections: LocalConnections) -> None:
    folder = connections.run_folder("job-0d1e00")
    folder.mkdir(parents=True)
    (folder / "agent.pyz").symlink_to(unpacked_agent())
    (folder.parent / QUEUE).write_text(f"{folder.name} started node1\n")
    assert asyncio.run(find_holders(INVENTORY)) == ()
    write_handover(folder, b"{}")
    try:
        found = asyncio.run(find_holders(INVENTORY))
        assert [(one.run_id, one.nodes) for one in found] == [(folder.name, ("node1",))]
        lived = steady() - HOLDS_S - 1
        os.utime(handover_path(folder), (lived, lived))
        assert asyncio.run(find_holders(INVENTORY)) == ()
    finally:
        remove_handover(folder)
        (folder.parent / QUEUE).unlink()


def test_a_run_that_is_stopped_while_it_waits_never_starts(
    connections: LocalConnections, tmp_path: Path
) -> None:
    async def both() -> None:
        began = asyncio.Event()
        events: list[Event] = []
        first = job("sleep 1000")
        running = asyncio.create_task(
            session.run(first, INVENTORY, tmp_path, lambda _: began.set())
        )
        await began.wait()
        second = await queued(job("true", on_stop="destroy"), tmp_path, 1, events)
        second.cancel()  # Ctrl-C
        result = await second
        assert (result.status, result.reason) == ("stopped", "stopped on request")
        assert [event.kind for event in events] == ["run_queued", "run_finished"]
        assert not running.done()
        await session.stop(first.run_id, INVENTORY, tmp_path)
        await running

    asyncio.run(both())


def test_runs_on_other_nodes_go_on_side_by_side(
    connections: LocalConnections, tmp_path: Path
) -> None:
    """The second one has no process of its job on the head, where its supervisor is."""

    async def both() -> None:
        began = asyncio.Event()
        events: list[Event] = []
        one = make_run(nodes=1, commands=("echo $GPUCTL_NODE_NAME; sleep 1000",))
        first = launch_plan(one, INVENTORY, new_run_id("one"))
        running = asyncio.create_task(
            session.run(first, INVENTORY, tmp_path, lambda _: began.set())
        )
        await began.wait()
        load = node_load(await find_holders(INVENTORY))
        assert load == {"node0": 1}
        other = make_run(nodes=1, commands=("echo $GPUCTL_NODE_NAME $GPUCTL_MASTER_NODE_IP",))
        second = launch_plan(other, INVENTORY, new_run_id("two"), None, load)
        result = await session.run(second, INVENTORY, tmp_path, events.append)
        assert (result.status, text(events, 0)) == ("done", ["node1 127.0.0.11"])
        assert not running.done()
        assert [one.run_id for one in await find_holders(INVENTORY)] == [first.run_id]
        assert (await session.stop(first.run_id, INVENTORY, tmp_path)).status == "stopped"
        await running

    asyncio.run(both())
