"""Who starts next, and on which nodes: the pure choice, and the file on the head."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.head.queue import (
    LEAVING,
    STARTED,
    Dropped,
    Entries,
    Entry,
    Queue,
    move_run,
    runs_ahead,
    set_state,
    waiting_runs,
)
from engine.agent.journal import run_secrets_file
from engine.agent.journal.clock import steady
from engine.plan.node_choice import choose_nodes, order_nodes
from nodes.inventory import Inventory
from tests.engine.conftest import make_inventory, make_run

pytestmark = pytest.mark.slow

NODES = tuple(f"node{rank}" for rank in range(5))
QUEUES = st.lists(st.sets(st.sampled_from(NODES), min_size=1), min_size=1, max_size=7).map(
    lambda wanted: tuple(Entry(f"job-{n}", tuple(sorted(w))) for n, w in enumerate(wanted))
)


def start_all(entries: Entries) -> Entries:
    """Start all that may, each looking by itself, the last ones of the queue first."""
    for run_id in reversed(waiting_runs(entries)):
        if not runs_ahead(entries, run_id):
            entries = set_state(entries, run_id, STARTED)
    return entries


def started(entries: Entries) -> list[Entry]:
    return [entry for entry in entries if entry.state == STARTED]


@given(QUEUES, st.data())
def test_every_run_gets_its_turn_and_no_node_has_two(entries: Entries, data: st.DataObject) -> None:
    begun: list[str] = []
    while entries:
        for moved in data.draw(st.sets(st.sampled_from(waiting_runs(entries) or ("",)))):
            entries = move_run(entries, moved, data.draw(st.integers(1, 9)))
        before = entries
        entries = start_all(entries)
        names = [name for entry in started(entries) for name in entry.nodes]
        assert len(names) == len(set(names))
        for entry in started(entries):
            if entry not in before:  # it has just started: nobody in front of it wants its nodes
                place = waiting_runs(before).index(entry.run_id)
                in_front = [e for e in before if e.run_id in waiting_runs(before)[:place]]
                still = [e for e in in_front if e.run_id in waiting_runs(entries)]
                assert not any(set(e.nodes) & set(entry.nodes) for e in still)
                begun.append(entry.run_id)
        assert started(entries), "the first one that waits can always start"
        ended = data.draw(st.sampled_from(started(entries)))
        entries = tuple(entry for entry in entries if entry != ended)
    assert len(begun) == len(set(begun))


@given(QUEUES, st.data())
def test_a_move_changes_one_place_alone(entries: Entries, data: st.DataObject) -> None:
    run_id = data.draw(st.sampled_from(waiting_runs(entries)))
    place = data.draw(st.integers(1, 9))
    after = move_run(entries, run_id, place)
    assert waiting_runs(after)[min(place, len(entries)) - 1] == run_id
    others = [one for one in waiting_runs(after) if one != run_id]
    assert others == [one for one in waiting_runs(entries) if one != run_id]
    assert sorted(after, key=str) == sorted(entries, key=str)


def test_a_run_of_other_nodes_does_not_wait_and_a_run_that_waits_is_not_overtaken() -> None:
    entries = (
        Entry("small", ("node0",), STARTED),
        Entry("wide", ("node0", "node1")),
        Entry("late", ("node1",)),
        Entry("other", ("node2",)),
    )
    assert runs_ahead(entries, "wide") == ("small",)
    assert runs_ahead(entries, "late") == ("wide",)
    assert runs_ahead(entries, "other") == ()
    assert runs_ahead((*entries, Entry("last", ("node3",), LEAVING)), "other") == ("last",)


LOADS = st.dictionaries(st.sampled_from(NODES), st.integers(0, 3))


@given(LOADS, st.integers(1, 5), st.sampled_from(["topology", "launch"]))
def test_free_nodes_are_chosen_first(load: dict[str, int], count: int, order: str) -> None:
    there = spread(make_inventory(5))
    chosen = choose_nodes(make_run(nodes=count, order=order), there, load)
    assert [node.rank for node in chosen] == list(range(count))
    names = [node.name for node in chosen]
    left_out = [load.get(name, 0) for name in set(NODES) - set(names)]
    assert all(load.get(name, 0) <= least for name in names for least in left_out)
    if not any(load.values()):
        assert names == [node.name for node in order_nodes(there.nodes, order)[:count]]  # type: ignore[arg-type]


def spread(there: Inventory) -> Inventory:
    """The inventory with nodes below three network nodes, not in their order."""
    layers = (("a", "b"), ("a", "c"), ("d", "e"), ("a", "b"), ("a", "c"))
    nodes = (
        node.model_copy(update={"topology": own})
        for node, own in zip(there.nodes, layers, strict=True)
    )
    return there.model_copy(update={"nodes": tuple(nodes)})


def test_an_elastic_run_takes_what_is_free() -> None:
    from config.run.run_file import Torchrun

    values = {"type": "torchrun", "name": "job", "commands": ("true",), "nnodes": "2..4"}
    run, there = Torchrun.model_validate(values), make_inventory(5)
    busy = dict.fromkeys(("node0", "node1"), 1)
    assert [n.name for n in choose_nodes(run, there, busy)] == ["node2", "node3", "node4"]
    busy |= dict.fromkeys(("node2", "node3"), 1)
    assert [n.name for n in choose_nodes(run, there, busy)] == ["node0", "node4"]


@contextmanager
def holding(*folders: Path) -> Iterator[None]:
    """Create the folders of runs; a process holds them, as a supervisor does."""
    code = "import sys; from pathlib import Path;"
    code += "from engine.agent.journal.locks import create_folder;"
    code += "[create_folder(Path(name)) for name in sys.argv[1:]]; print(flush=True); input()"
    argv = [sys.executable, "-c", code, *map(str, folders)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield
        process.kill()


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    """A queue; the runs a, b and c have a process that holds their folders."""
    with holding(*(tmp_path / name for name in "abc")):
        yield Queue(tmp_path)


def test_nodes_are_taken_whole_or_not_at_all(queue: Queue, tmp_path: Path) -> None:
    assert queue.runs_in_the_way(("node0",)) == ()
    assert queue.enter("a", ("node0", "node1"), may_wait=False)
    assert not queue.enter("b", ("node1", "node2"), may_wait=False)
    assert (tmp_path / "queue").read_text() == "a started node0,node1\n"
    assert queue.runs_in_the_way(("node1", "node2")) == ("a",)
    assert queue.enter("b", ("node1", "node2"), may_wait=True)
    assert queue.enter("c", ("node2",), may_wait=True)
    assert queue.try_start("c") == (2, ("b",))
    assert queue.move("c", 1)
    assert queue.try_start("c") is None
    assert queue.try_start("b") == (1, ("a", "c"))
    queue.leave("a")
    assert not queue.move("c", 1), "it has started"
    assert not queue.drop("c")
    assert queue.drop("b")
    with pytest.raises(Dropped):
        queue.try_start("b")


def test_a_run_that_was_killed_leaves_no_claim(queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "dead").mkdir()
    (tmp_path / "queue").write_text("dead started node0\ngone waiting node0\n")
    assert queue.enter("a", ("node0",), may_wait=False)
    assert (tmp_path / "queue").read_text() == "a started node0\n"


def test_a_run_holds_its_nodes_as_long_as_its_killed_supervisor_may_come_back(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path / "memory"))
    killed = tmp_path / "killed"
    killed.mkdir()
    (tmp_path / "queue").write_text("killed started node1\n")
    run_secrets_file.write_handover(killed, b"{}")
    assert queue.runs_in_the_way(("node1",)) == ("killed",)
    lived = steady() - run_secrets_file.HOLDS_S - 1
    os.utime(run_secrets_file.handover_path(killed), (lived, lived))
    run_secrets_file.renew_handover(killed)
    assert queue.runs_in_the_way(("node1",)) == ("killed",)
    os.utime(run_secrets_file.handover_path(killed), (lived, lived))
    assert queue.enter("a", ("node1",), may_wait=False)
    assert not run_secrets_file.may_come_back(killed), "another run has its node"


def test_no_run_begins_on_a_cluster_that_powers_off(queue: Queue) -> None:
    assert queue.enter("a", ("node0",), may_wait=False)
    assert queue.enter("b", ("node0",), may_wait=True)
    assert not queue.close_cluster("a"), "b waits for it"
    assert queue.drop("b")
    assert queue.close_cluster("a")
    assert not queue.enter("c", ("node1",), may_wait=True)
    assert queue.runs_in_the_way(("node1",)) == ("a",)
