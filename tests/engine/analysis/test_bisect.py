"""The plan and the verdict of a bisect, on fleets with one slow node or one slow pair."""

import os
import subprocess
from collections.abc import Callable
from itertools import permutations
from math import ceil, log2
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.quantities import elapsed
from engine.agent.judge.output_reader import OutputReader
from engine.analysis.bisect.launch import RoundReader, run_file
from engine.analysis.bisect.report import describe, ring_line, verdict_line
from engine.analysis.bisect.rounds import Round, Trial, count_runs, first_rounds, last_round
from engine.analysis.bisect.verdict import Measurement, confirmed, next_round, suspects
from engine.contract.worker_events import Output
from engine.plan.launch_plan import launch_plan
from nodes.inventory import Inventory
from tests.engine.conftest import make_inventory

pytestmark = pytest.mark.slow

Speed = Callable[[Trial], float]
NODES = st.integers(2, 64)
GPUS = st.sampled_from([0, 1, 8])
NOISE = 0.05
FLEETS = settings(max_examples=25)


def measure(nodes: int, gpus: int, speed: Speed) -> tuple[int, list[Measurement]]:
    """How many runs a bisect of such a fleet takes, and what it measures."""
    measured: list[Measurement] = []
    runs = 0
    while a_round := next_round(nodes, gpus, runs, measured):
        measured += [Measurement(trial=one, gbps=speed(one)) for one in a_round.trials]
        runs += 1
    return runs, measured


def fleet(slow: dict[tuple[int, ...], float], seed: int = 0, noise: float = 0.0) -> Speed:
    """A fleet of 40 GB/s; `slow` has factors, of nodes or of both directions of a pair."""
    random = Random(seed)

    def speed(trial: Trial) -> float:
        of = [slow.get((node,), 1.0) for node in trial.nodes]
        if trial.collective == "broadcast":
            of.append(slow.get(tuple(sorted(trial.nodes)), 1.0))
        return 40 * min(of) * random.uniform(1 - noise, 1 + noise)

    return speed


@FLEETS
@given(NODES, GPUS)
def test_every_pair_is_measured_once_both_ways_and_no_step_uses_a_node_twice(
    nodes: int, gpus: int
) -> None:
    rounds = first_rounds(nodes, gpus)
    assert count_runs(nodes, gpus) == (gpus > 1) + ceil(log2(nodes)) + 1 == len(rounds) + 1
    for step in (step for one in rounds for step in one.steps):
        used = [node for lane in step for node in {n for trial in lane for n in trial.nodes}]
        assert len(used) == len(set(used))
    pairs = [trial.nodes for one in rounds for trial in one.trials if len(trial.nodes) == 2]
    assert sorted(pairs) == sorted(permutations(range(nodes), 2))
    assert sum(len(one.steps) for one in rounds if one.title == "pairs") <= nodes - 1 + log2(nodes)


@FLEETS
@given(st.data(), st.integers(3, 64), GPUS, st.floats(0, 0.6), st.integers(0, 2**20))
def test_one_slow_node_or_pair_is_named_and_nothing_else(
    data: st.DataObject, nodes: int, gpus: int, factor: float, seed: int
) -> None:
    count = data.draw(st.sampled_from([1, 2]))
    slow = data.draw(
        st.lists(st.integers(0, nodes - 1), min_size=count, max_size=count, unique=True)
    )
    named = tuple(sorted(slow))
    runs, measured = measure(nodes, gpus, fleet({named: factor}, seed, NOISE))
    assert [one.nodes for one in confirmed(measured)] == [named]
    assert runs == count_runs(nodes, gpus)


@FLEETS
@given(NODES, GPUS, st.integers(0, 2**20))
def test_a_good_fleet_has_no_suspects(nodes: int, gpus: int, seed: int) -> None:
    assert confirmed(measure(nodes, gpus, fleet({}, seed, NOISE))[1]) == ()


@FLEETS
@given(st.integers(2, 64), st.data(), st.floats(0, 0.5))
def test_a_node_that_is_slow_alone_is_named(nodes: int, data: st.DataObject, factor: float) -> None:
    slow = data.draw(st.integers(0, nodes - 1))

    def speed(trial: Trial) -> float:
        return 400 * factor if trial.nodes == (slow,) else 400

    (found,) = confirmed(measure(nodes, 8, speed)[1])
    assert (found.nodes, [one.how for one in found.evidence]) == ((slow,), ["alone"])


def lines(nodes: int, speed: Speed, gpus: int = 1) -> list[str]:
    measured = measure(nodes, gpus, speed)[1]
    names = [f"node{number}" for number in range(nodes)]
    found = confirmed(measured)
    return [
        verdict_line(names, found, measured),
        *(describe(one, names) for one in found[1:]),
        ring_line(names, measured),
    ]


def test_the_verdict_is_one_line_with_its_evidence() -> None:
    assert lines(8, fleet({(5,): 0.588})) == [
        "node5: 41 % below the median of 8 as sender and receiver"
        " (23.5 of 40 GB/s, 23.5 of 40 GB/s)",
        "the ring of all 8 nodes: 23.5 GB/s; without node5: 40 GB/s",
    ]
    assert lines(4, fleet({(0, 3): 0.5}), gpus=8) == [
        "node0 and node3: 50 % below what both reach with others"
        " (node0 to node3 20 of 40 GB/s, node3 to node0 20 of 40 GB/s)",
        "the ring of all 4 nodes: 40 GB/s; without node3: 40 GB/s",
    ]
    assert lines(4, fleet({(2,): 0.25, (0,): 0.5}), gpus=8) == [
        "node2: 66 % below the median of 4 alone (NVLink) and as sender and receiver"
        " (10 of 30 GB/s, 10 of 30 GB/s, 10 of 30 GB/s)",
        "node0: 33 % below the median of 4 alone (NVLink) and as sender and receiver"
        " (20 of 30 GB/s, 20 of 30 GB/s, 20 of 30 GB/s)",
        "the ring of all 4 nodes: 10 GB/s; without node2: 20 GB/s",
    ]


def test_only_the_direction_that_is_slow_is_named() -> None:
    def speed(trial: Trial) -> float:
        return 10 if trial.collective == "broadcast" and trial.nodes[0] == 1 else 40

    assert lines(4, speed)[0] == "node1: 75 % below the median of 4 as sender (10 of 40 GB/s)"


def test_a_good_fleet_is_reported_with_its_spread() -> None:
    def speed(trial: Trial) -> float:
        return 40 - trial.nodes[0]

    assert lines(4, speed) == [
        "no node and no pair is slow: 4 nodes, as sender 37 to 40 GB/s, as receiver 39 to 40 GB/s",
        "the ring of all 4 nodes: 40 GB/s",
    ]
    assert lines(2, speed)[0] == (
        "nothing to compare: two nodes are one pair, and it takes three to name a slow one"
    )


def test_the_page_has_the_numbers_of_the_plan() -> None:
    page = Path("docs/do/bisect.md").read_text()
    for nodes in (4, 8, 16, 32, 64):
        rounds = (*first_rounds(nodes, 8), last_round(nodes, (0,), ((0, 1),)))
        steps = sum(len(one.steps) for one in rounds if one.title == "pairs")
        took = elapsed(sum(one.seconds for one in rounds))
        assert f"| {nodes} | {len(rounds)} | {steps} | {took} |\n" in page


MPIRUN = r"""#!/bin/bash
[ "$1" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && exit
hosts=$(printf '%s\n' "$@" | grep -A1 -x -- -H | grep : | cut -d: -f1 | tr '\n' ' ')
if [[ $hosts = *10.0.0.3*10.0.0.1* ]]; then echo 'node3: no route to host' >&2; exit 1; fi
echo '# nThread 1 nGpus 1 minBytes 65536 maxBytes 65536 step: 2(factor) warmup iters: 5 iters: 20'
for host in $hosts; do echo "#  Rank  0 Group  0 Pid  1 on $host device  0 [0x00] GPU"; done
time=100.0; [[ $hosts = *10.0.0.2* ]] && time=400.0
echo "  65536  16384  float  none  0  $time  0.00  0.00  0  500.0  0.00  0.00  0"
echo '# Out of bounds values : 0 OK'
"""


def test_the_script_measures_side_by_side_and_outlives_a_trial_that_fails(tmp_path: Path) -> None:
    fleet_of_four = make_inventory(4, gpus=0)
    for name, text in (("mpirun", MPIRUN), ("all_reduce_perf", ""), ("broadcast_perf", "")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    addresses = [f"10.0.0.{number}" for number in range(4)]
    measured: list[Measurement] = []
    for a_round in (*first_rounds(4, 1), last_round(4, (2,), ((0, 1),))):
        measured += run_script(a_round, fleet_of_four, tmp_path, addresses)
    by_nodes = {one.trial.nodes: one for one in measured}
    assert by_nodes[0, 1].gbps == pytest.approx(0.65536)
    assert by_nodes[0, 2].gbps == by_nodes[2, 3].gbps == pytest.approx(0.16384)
    assert by_nodes[3, 1] == Measurement(
        trial=Trial(collective="broadcast", nodes=(3, 1)), gbps=0, error="node3: no route to host"
    )
    # Bus bandwidth of all_reduce: 2 (n - 1) / n times the data, for 4 ranks and for 3.
    assert by_nodes[0, 1, 2, 3].gbps == pytest.approx(0.16384 * 1.5)
    assert by_nodes[0, 1, 3].gbps == pytest.approx(0.65536 * 4 / 3)
    assert len(measured) == 12 + 2 + 4


def run_script(
    a_round: Round, nodes: Inventory, programs: Path, addresses: list[str]
) -> list[Measurement]:
    plan = launch_plan(run_file(a_round, 4, 64 * 1024), nodes, "bisect-000001")
    done = subprocess.run(
        ["bash", "-c", plan.nodes[0].script],
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TMPDIR": str(programs),
            "GPUCTL_NODES_IPS": "\n".join(addresses),
            "GPUCTL_GPUS_PER_NODE": "0",
            "GPUCTL_RUN_FOLDER": "/nowhere",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    reader, head = RoundReader(a_round), OutputReader(plan)
    for line in done.stdout.splitlines():
        for event in head.read(Output(0, "stdout", line)):
            reader.see(event)
    return reader.measured


def test_a_moment_of_other_load_names_nobody() -> None:
    """In the first rounds node2 is slow with all; measured again, it is not."""
    measured = [
        Measurement(trial=one, gbps=10 if 2 in one.nodes else 40)
        for a_round in first_rounds(4, 1)
        for one in a_round.trials
    ]
    assert [one.nodes for one in suspects(measured)] == [(2,)]
    last = next_round(4, 1, 2, measured)
    assert last is not None
    assert [trial.nodes for trial in last.trials] == [
        (0, 1, 2, 3),
        (0, 1, 3),
        *[(2, 0), (0, 2)] * 2,
    ]
    measured += [Measurement(trial=one, gbps=40) for one in last.trials]
    assert confirmed(measured) == ()
