"""The first failure in words: which node, why, what followed, and what is a warning."""

from typing import Any

import pytest

from engine.agent.judge.failure_patterns import Clues
from engine.agent.judge.failures import Finding, exit_text, explain
from engine.contract.head_events import FollowedFailure
from engine.contract.verdict import Verdict, exit_reason
from engine.contract.worker_events import NodeExamined, NodeFact

NAMES = ["node0", "node1", "node2", "node3"]
KILL = "the kernel killed python3 (pid 4711, 63.2 GiB) because memory was short"
XID = "Xid 79 on 0000:2b:00: the GPU has fallen off the bus; reboot the node"


def failed(rank: int, code: int) -> Verdict:
    return Verdict("failed", code, rank, exit_reason(NAMES[rank], code), is_jobs_own=True)


def node(rank: int, code: int, is_own_end: bool = True, **facts: str) -> NodeExamined:
    found = tuple(NodeFact(kind.replace("_", "-"), text) for kind, text in facts.items())
    return NodeExamined(rank, code, is_own_end, found)


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (node(3, 7), "node3: exited with 7"),
        (node(3, 255), "node3: exited with 255"),
        (node(3, 137), "node3: killed by SIGKILL (137)"),
        (node(3, 137, memory=KILL), f"node3: killed by SIGKILL (137): {KILL}"),
        (
            node(3, 139),
            "node3: killed by SIGSEGV (139): it used memory that it does not have",
        ),
        (
            node(3, 139, crash="train (pid 7) got a segfault in libnccl.so; the core is /c"),
            "node3: killed by SIGSEGV (139): train (pid 7) got a segfault in libnccl.so;"
            " the core is /c",
        ),
        (node(3, 1, crash="dnf (pid 9) got a segfault"), "node3: exited with 1"),
        (
            node(3, 1, exception="torch's error file says: ValueError: x", gpu=XID),
            f"node3: exited with 1: {XID}; torch's error file says: ValueError: x",
        ),
        (
            node(3, 1, disk="the disk of / is full (0 B of 8.0 GiB are free)"),
            "node3: exited with 1: the disk of / is full (0 B of 8.0 GiB are free)",
        ),
        (
            node(3, 1, clock="its clock was set back by 3600 s during the run"),
            "node3: exited with 1: its clock was set back by 3600 s during the run",
        ),
    ],
)
def test_the_first_failure_is_named_with_its_cause(one: NodeExamined, reason: str) -> None:
    explained = explain(failed(3, one.exit_code), NAMES, [one])
    assert explained.verdict == Verdict("failed", one.exit_code, 3, reason, is_jobs_own=True)
    assert explained.followed == ()


def test_a_node_with_a_cause_comes_before_the_one_that_reported_first() -> None:
    ends = [node(0, 1), node(2, 1), node(1, 137, memory=KILL), node(3, 134)]
    explained = explain(failed(0, 1), NAMES, ends)
    reason = f"node1: killed by SIGKILL (137): {KILL}"
    assert explained.verdict == Verdict("failed", 137, 1, reason, is_jobs_own=True)
    assert explained.followed == (
        FollowedFailure(("node0", "node2"), "exited with 1"),
        FollowedFailure(("node3",), "killed by SIGABRT (134): it ended itself after an error"),
    )


def test_the_first_with_a_cause_stays_first() -> None:
    ends = [node(0, 1, exception="E"), node(1, 137, memory=KILL)]
    explained = explain(failed(0, 1), NAMES, ends)
    assert explained.verdict.reason == "node0: exited with 1: E"
    assert explained.followed == (FollowedFailure(("node1",), f"killed by SIGKILL (137): {KILL}"),)


@pytest.mark.parametrize(
    ("code", "facts", "text"),
    [(137, {"memory": KILL}, KILL), (1, {"gpu": XID}, XID), (139, {"crash": "C"}, "C")],
)
def test_a_launcher_fails_for_a_process_on_another_node(
    code: int, facts: dict[str, Any], text: str
) -> None:
    stopped = node(1, 143, is_own_end=False, **facts)
    explained = explain(failed(0, code), NAMES, [node(0, code), stopped])
    reason = f"node1: {text}"
    assert explained.verdict == Verdict("failed", code, 1, reason, is_jobs_own=True)
    (launcher,) = explained.followed
    assert launcher.nodes == ("node0",)
    assert launcher.text.startswith(exit_text(code))


def test_a_crash_elsewhere_explains_no_other_end() -> None:
    stopped = node(1, 143, is_own_end=False, crash="dnf (pid 9) got a segfault")
    explained = explain(failed(0, 1), NAMES, [node(0, 1), stopped])
    assert explained.verdict.reason == "node0: exited with 1"
    assert explained.others == (Finding("warning", 1, "node1: dnf (pid 9) got a segfault"),)


def test_a_collective_that_timed_out_is_the_reason() -> None:
    text = "NCCL's ALLREDUCE number 8 timed out after 600 s: rank 3 (node1) did not arrive"
    explained = explain(failed(0, 134), NAMES, [node(0, 134), node(2, 134)], text)
    assert explained.verdict.reason == f"node0: killed by SIGABRT (134): {text}"
    assert explained.followed[0].nodes == ("node2",)


def test_a_notice_of_aws_stays_behind() -> None:
    notice = "; AWS takes node2's spot instance back: terminate at 08:22"
    verdict = Verdict("failed", 7, 1, exit_reason("node1", 7) + notice, is_jobs_own=True)
    assert explain(verdict, NAMES, []).verdict.reason == f"node1: exited with 7{notice}"


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict("done", 0, None, "all nodes are done"),
        Verdict("stopped", 130, None, "stopped on request"),
        Verdict("failed", 125, 1, "node1 has not answered for 15 s"),
    ],
)
def test_other_verdicts_stay_and_facts_are_warnings(verdict: Verdict) -> None:
    clock = "its clock was set back by 60 s during the run"  # an event has said so
    ends = [node(2, 0, gpu_notice="Xid 63", clock=clock), node(0, 1)]
    assert explain(verdict, NAMES, ends) == (
        verdict,
        (),
        (Finding("warning", 2, "node2: Xid 63"),),
    )


def test_facts_that_are_no_reason_are_warnings_also_of_the_first() -> None:
    ends = [node(1, 7, gpu_notice="Xid 63", others_memory="the kernel killed dnf")]
    explained = explain(failed(1, 7), NAMES, ends)
    assert explained.verdict.reason == "node1: exited with 7"
    texts = [one.text for one in explained.others]
    assert texts == ["node1: Xid 63", "node1: the kernel killed dnf"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (130, "killed by SIGINT (130)"),
        (143, "killed by SIGTERM (143)"),
        (159, "killed by SIGSYS (159)"),
        (128, "exited with 128"),
        (162, "exited with 162"),
        (192, "exited with 192"),
        (205, "exited with 205"),
    ],
)
def test_a_status_of_a_signal_is_the_signal(code: int, text: str) -> None:
    assert exit_text(code) == text


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (1, "node0"),
        (4, "node0, node1, node2, node3"),
        (6, "node0, node1, node2, node3 and 2 more"),
    ],
)
def test_of_many_lost_daemons_the_first_are_named(count: int, names: str) -> None:
    clues = Clues({f"10.0.0.{number}": f"node{number}" for number in range(8)})
    for number in range(count):
        clues.feed(0, f"  Remote daemon: [[6217,0],{number + 1}] on node 10.0.0.{number}")
    assert clues.facts(0) == [NodeFact("launcher", f"mpirun lost its daemon on {names}")]
