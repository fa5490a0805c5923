"""The nodes of a run are checked while it is prepared."""

import pytest

from cli.output import Output
from config.errors import GpuctlError, NodeError
from config.target import Target
from operations.prerun_health import NodeCheck
from provision.health.judge import UNREACHABLE
from provision.health.model import Finding, Severity
from provision.state.store import ClusterStore
from tests.cli.conftest import remember
from tests.engine.conftest import make_inventory, make_plan


def finding(severity: Severity, rule: str = "gpus", node: str = "node1") -> Finding:
    return Finding(
        rule=rule, node=node, subject="GPUs", expected="8", seen="7", severity=severity,
        remedy="replace it", source="somebody",
    )  # fmt: skip


def check(
    answer: tuple[Finding, ...] | GpuctlError, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(_: object, nodes: list[object], *__: object) -> tuple[Finding, ...]:
        assert len(nodes) == 2  # of three
        if isinstance(answer, GpuctlError):
            raise answer
        return answer

    monkeypatch.setattr("operations.prerun_health.short_check", found)
    there = remember(make_inventory(3), target)
    NodeCheck(make_plan(), there, ClusterStore(target)).finish(Output().progress())


def test_a_node_that_is_not_fit_keeps_the_run_from_starting(
    remembered: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NodeError) as caught:
        check((finding("isolate"), finding("watch", node="node0")), remembered, monkeypatch)
    assert str(caught.value) == (
        "node1: GPUs: expected 8, actual 7 (isolate: replace it); `gpuctl health demo` checks"
        " again, --no-health starts the run all the same"
    )


def test_what_is_for_watching_is_a_warning(
    remembered: Target, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check((finding("watch"),), remembered, monkeypatch)
    assert capsys.readouterr().err == (
        "gpuctl: warning: node1: GPUs: expected 8, actual 7; replace it\n"
    )


@pytest.mark.parametrize("answer", [(finding("reboot", UNREACHABLE),), NodeError("lost", "wait")])
def test_nodes_that_do_not_answer_are_left_to_the_run(
    answer: tuple[Finding, ...] | GpuctlError, remembered: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(answer, remembered, monkeypatch)
