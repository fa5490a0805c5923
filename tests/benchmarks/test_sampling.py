"""The benchmark of the sampler reads what it says, and a sampler takes less than 1 % of a core."""

from pathlib import Path

from benchmarks.sampling import EFA, large_node, measure
from engine.agent.metrics.node_counters import NodeCounters
from engine.agent.metrics.sampler import INTERVAL_S


def test_the_large_node_has_every_counter(tmp_path: Path) -> None:
    large_node(tmp_path)
    sample = NodeCounters(tmp_path, tmp_path).read()
    assert sample["rdma"][0] == EFA * 123456789012
    assert sample["network"] == [EFA * 12345, EFA * 98765]
    assert sample["job"] == [1.5, 4000]


def test_a_sampler_takes_less_than_a_hundredth_of_a_core(tmp_path: Path) -> None:
    """Fifty times as often as it does, each sample may take a hundredth of the real interval."""
    large_node(tmp_path)
    may_take = 0.01 * INTERVAL_S
    part, stream = measure(tmp_path, 2, INTERVAL_S / 50)
    assert stream.samples
    assert 2 * part / stream.samples < may_take
