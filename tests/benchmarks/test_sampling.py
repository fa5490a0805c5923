"""The benchmark of the sampler reads what it says, and a sampler takes less than 1 % of a core."""

from pathlib import Path

import pytest

from benchmarks.sampling import EFA, large_node, measure
from engine.agent.metrics import node_counters, sampler
from engine.agent.metrics.node_counters import NodeCounters


def test_the_large_node_has_every_counter(tmp_path: Path) -> None:
    large_node(tmp_path)
    sample = NodeCounters(tmp_path, tmp_path).read()
    assert sample["rdma"][0] == EFA * 123456789012
    assert sample["network"] == [EFA * 12345, EFA * 98765]
    assert sample["job"] == [1.5, 4000]


def test_a_sampler_takes_less_than_a_hundredth_of_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty times as often as it does, each sample may take a hundredth of the real interval."""
    large_node(tmp_path)
    may_take = 0.01 * sampler.INTERVAL_S
    monkeypatch.setattr(sampler, "INTERVAL_S", sampler.INTERVAL_S / 50)
    monkeypatch.setattr(node_counters, "NodeCounters", NodeCounters)  # measure replaces it
    part, stream = measure(tmp_path, 2)
    assert stream.samples
    assert 2 * part / stream.samples < may_take
