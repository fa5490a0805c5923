"""The verdict on new nodes names each that failed, and why, for `up` to replace it."""

from dataclasses import replace

import pytest

from config.errors import BrokenNodes, NodeError
from config.progress import Progress
from provision.setup.node_health import broken, judge
from tests.engine.conftest import make_inventory
from tests.provision.health.examples import GOOD, P4D

THREE = make_inventory(3)
NODE1 = THREE.nodes[1]


def test_the_cause_is_the_message_without_the_node() -> None:
    where = f"{NODE1.name} ({NODE1.private_ip})"
    failed = broken(NODE1, NodeError(f"{where}: 'false' failed with exit code 1", "no output"))
    assert failed.causes == {"node1": "'false' failed with exit code 1"}
    assert str(failed) == f"{where}: 'false' failed with exit code 1; no output"
    assert broken(NODE1, NodeError(f"{where} reboots", "")).causes == {"node1": "reboots"}
    assert broken(THREE.nodes[0], failed) is failed, "it names its node itself"


def test_failed_set_ups_and_findings_are_one_error() -> None:
    failed = BrokenNodes(
        "node0 (10.0.0.1) is terminated", "its console", {"node0": "is terminated"}
    )
    lacking = replace(GOOD, gpus=(GOOD.gpus or ())[:7])
    told: list[Progress] = []
    with pytest.raises(BrokenNodes) as caught:
        judge(
            THREE,
            P4D,
            {"node0": failed, "node1": (lacking, 0.0), "node2": (GOOD, 0.0)},
            told.append,
        )
    assert caught.value.causes == {
        "node0": "is terminated",
        "node1": "GPUs: expected 8, actual 7",
    }
    first, second = caught.value.message.splitlines()
    assert first == failed.message
    assert second.startswith(f"node1 ({NODE1.private_ip}): GPUs: expected 8, actual 7 (isolate: ")
    assert caught.value.hint == "its console\ndocs/look-up/health-rules.md has every check"
    assert [(one.subject, one.state) for one in told] == [("node1", "failed"), ("node2", "done")]
