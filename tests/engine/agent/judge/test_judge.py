"""What a run's output says against it: when it is told, and what becomes of the verdict."""

from dataclasses import replace
from typing import Any

import pytest

from engine.agent.judge.failures import Finding
from engine.agent.judge.output_checks import PIPE, Judge
from engine.contract.event import NodeEvent
from engine.contract.head_events import NetworkSeen, OutputJudged
from engine.contract.plan import NetworkPlan, Verify
from engine.contract.verdict import Verdict
from tests.engine.agent.judge.test_numbers import DONE, GOOD, document, judged, row, table
from tests.engine.bare_events import findings, printed
from tests.engine.bare_plans import bare_node, bare_plan

SOCKETS = "node0:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"
FAILED = Verdict("failed", 3, 1, "node1 exited with 3", is_jobs_own=True)


def judge(verify: Verify = "auto") -> Judge:
    network = NetworkPlan(promises="efa", interfaces=4, verify=verify)
    return Judge(bare_plan([bare_node(0), bare_node(1)], network))


def hear(here: Judge, text: str, rank: int = 0, ends_line: bool = True) -> list[NodeEvent]:
    return here.hear(printed(text, rank, ends_line))


def finding(event: NodeEvent) -> Finding:
    """The finding of the event."""
    (of_event,) = findings([event])
    return of_event


@pytest.mark.parametrize(
    ("line", "verify", "heard"),
    [
        (SOCKETS, "auto", ("network_seen", "fault")),
        (SOCKETS, "warn", ("network_seen", "warning")),
        (row(8, 1), "auto", ("output_judged", "fault")),
        (row(8, 1), "warn", ("output_judged", "warning")),
    ],
)
def test_a_fault_of_the_network_alone_ends_a_run_at_once(
    line: str, verify: Verify, heard: tuple[str, str]
) -> None:
    (one,) = hear(judge(verify), line)
    assert (one.kind, finding(one).level) == heard


def test_a_last_line_without_a_newline_fails_a_run_that_was_done_and_no_other() -> None:
    for verdict in (DONE, FAILED):
        here = judge()
        assert hear(here, SOCKETS, ends_line=False) == []
        (one, *_), ended = here.end(verdict)
        assert finding(one).text.startswith("node0 uses sockets instead of EFA: ")
        fault = Verdict("failed", 1, 0, finding(one).text, cause="network")
        expected = fault if verdict is DONE else FAILED
        assert ended == expected


def test_what_never_came_is_asked_of_a_run_that_was_done_alone() -> None:
    ((one,), ended) = judge("require").end(DONE)
    assert (one.kind, finding(one).level) == ("network_seen", "fault")
    assert ended == Verdict("failed", 1, 0, finding(one).text, cause="network")
    assert finding(one).text.startswith("no line of NCCL shows EFA, which `verify: require` needs")
    assert judge("require").end(FAILED) == ([], FAILED)


def test_a_table_is_judged_when_the_next_one_begins() -> None:
    here = judge()
    first, second = table(*GOOD[:2], footer=None), table(*GOOD)
    assert [one for line in first for one in hear(here, line)] == []
    (one,) = hear(here, second[0])
    assert finding(one).text == (
        "all_reduce on node0 is incomplete: it ended at 32 bytes of 32 bytes"
    )
    assert [one for line in second[1:] for one in hear(here, line)] == []


def test_only_wrong_data_and_failed_tests_come_before_the_jobs_own_failure() -> None:
    incomplete = "all_reduce on node1 is incomplete: it ended at 32 bytes of 32 bytes"
    failure = "node1: Test NCCL failure common.cu:1 'x'"
    for lines, code, reason in (
        (table(*GOOD[:2], footer=None), 3, f"{FAILED.reason}; {incomplete}"),
        ([failure], 3, f"{failure}; {FAILED.reason}"),
        ([*table(*GOOD[:2], footer=None), failure], 3,
         f"{failure} (and 1 more); {FAILED.reason}"),
    ):  # fmt: skip
        verdict = judged(lines, verdict=FAILED)[1]
        assert verdict == replace(FAILED, exit_code=code, reason=reason)


def test_a_pipe_that_failed_is_told_once_for_each_node() -> None:
    here, line = judge(), f"[1,0]<stderr>:{PIPE}entry 2 of the commands, part 1 of 2 ended with 3"
    (one,) = hear(here, line)
    assert finding(one) == (
        "warning",
        0,
        "node0: in a pipe of entry 2 of the commands, part 1 of 2 ended with 3",
    )
    assert hear(here, line) == []
    (other,) = hear(here, line, rank=1)
    assert finding(other).text.startswith("node1: in a pipe of entry 2")


def test_json_is_judged_once_and_what_is_no_table_says_nothing() -> None:
    here, wrong = judge(), document(wrong=1.0)
    (one,) = here.read_json(1, wrong)
    assert finding(one).text == (
        "wrong data: all_reduce on node1 has 1 wrong value at 16 bytes, in-place (float, sum)"
    )
    assert here.read_json(1, document(wrong=1.0)) == []
    assert judge("off").read_json(1, wrong) == []
    nonsense: list[dict[str, Any]] = [
        *({}, {**wrong, "args": []}, {**wrong, "results": 1}, {**wrong, "nccl_version": "x"}),
    ]
    assert [judge().read_json(1, one) for one in nonsense] == [[]] * 4


def test_what_an_earlier_supervisor_found_is_not_reported_again() -> None:
    lines = [f"{PIPE}entry 2", row(8, 1), SOCKETS, "node0: Test NCCL failure common.cu:1 'x'"]
    first = judge()
    heard = [event for line in lines for event in hear(first, line)]
    assert len(heard) == len(lines)
    resumed = judge()
    for event in heard:
        assert isinstance(event, (NetworkSeen, OutputJudged))
        resumed.restore(event)
    assert [event for line in lines for event in hear(resumed, line)] == []


@pytest.mark.parametrize(
    ("columns", "test"),
    [
        ("sum      -1", "float, sum"),
        ("none     -1", "float"),
        ("none      3", "float, root 3"),
        ("max       0", "float, max, root 0"),
        ("", "float"),
    ],
)
def test_the_test_that_was_wrong_is_named(columns: str, test: str) -> None:
    (one,) = hear(judge(), row(8, 2).replace("sum      -1", columns))
    assert finding(one).text == (
        f"wrong data: nccl-tests on node0 has 2 wrong values at 8 bytes, out-of-place ({test})"
    )
