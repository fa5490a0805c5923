"""The first failure of a run in words, and what followed from it: a pure function of what is known.

The node that reports its end first is not always the first to fail: ranks that lose a rank exit
at once, while the node of the lost rank still collects its output. So a node with a cause (a kill
for memory, a broken GPU, a full disk, …) comes before a node that has none.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from engine.agent.judge.findings import Finding
from engine.contract.head_events import FollowedFailure
from engine.contract.verdict import Verdict, exit_reason
from engine.contract.worker_events import NodeExamined

_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
_MEANINGS = {
    signal.SIGSEGV: "it used memory that it does not have",
    signal.SIGBUS: "memory behind a file was missing, often because /dev/shm or a disk is full",
    signal.SIGILL: "this processor does not have an instruction of the program",
    signal.SIGFPE: "arithmetic error, such as a division by zero",
    signal.SIGABRT: "it ended itself after an error",
    signal.SIGTERM: "another process asked it to end",
}
"""What a signal means if nothing more is known."""

_ORDER = (
    "start",
    "agent",
    "memory",
    "gpu",
    "crash",
    "core",
    "disk",
    "files",
    "nccl",
    "exception",
    "launcher",
    "rank",
    "nccl-peer",
    "clock",
)
"""Kinds of facts that explain a node's failure, the strongest first."""
_CAUSES = ("start", "agent", "memory", "gpu", "disk", "files", "nccl", "exception")
"""Kinds that make a node the first to fail, though another node reported its end before."""
_KILLERS = ("memory", "gpu")
"""Kinds that end processes which a launcher on another node waits for."""
_MOST = 3  # facts in a reason


class Explanation(NamedTuple):
    """The verdict with its reason in words, what followed, and facts that are no reason."""

    verdict: Verdict
    followed: tuple[FollowedFailure, ...]
    others: tuple[Finding, ...]


def explain(
    verdict: Verdict, names: list[str], examined: list[NodeExamined], collective: str = ""
) -> Explanation:
    """Return the verdict in words. `examined` are in order of arrival, `names` in rank order.

    `collective` says which collective of NCCL timed out, if any. Only the verdict of a job that
    failed by itself changes; the facts of all other runs are returned as warnings.
    """
    if verdict.status != "failed" or not verdict.is_jobs_own:
        return Explanation(verdict, (), _warnings(names, examined))
    assert verdict.first_failed_rank is not None
    reported = verdict.first_failed_rank
    first = _first_failure(reported, verdict.exit_code, examined)
    code = first.exit_code if first.has_failed else verdict.exit_code
    reason = f"{names[first.rank]}: {_end_text(first, code, collective)}"
    # What follows stays, such as a notice of AWS.
    reason += verdict.reason.removeprefix(exit_reason(names[reported], verdict.exit_code))
    explained = replace(verdict, exit_code=code, first_failed_rank=first.rank, reason=reason)
    later = [
        examination
        for examination in examined
        if examination.has_failed and examination.rank != first.rank
    ]
    named = {first.rank, *(node.rank for node in later)}
    return Explanation(explained, _followed(later, names), _warnings(names, examined, named))


def exit_text(code: int) -> str:
    """Return the end of a process: `exited with 7`, `killed by SIGKILL (137)`."""
    number = _signal_of(code)
    return f"exited with {code}" if number is None else f"killed by {number.name} ({code})"


def _signal_of(code: int) -> signal.Signals | None:
    """Return the signal that a status means: bash and mpirun return 128 + N."""
    try:
        number = signal.Signals(code - 128)
    except ValueError:
        return None
    return number if number < signal.SIGRTMIN else None


def _first_failure(reported: int, code: int, examined: list[NodeExamined]) -> NodeExamined:
    """Return the node that failed first, `reported` unless another one has a stronger cause."""
    by_rank = {examination.rank: examination for examination in examined}
    first = by_rank.get(reported, NodeExamined(reported, code, is_own_end=True, facts=()))
    if first.has(*_CAUSES):
        return first
    tests: tuple[Callable[[NodeExamined], bool], ...] = (
        lambda node: node.has_failed and node.has(*_CAUSES),
        lambda node: node.has(*_KILLERS),
        lambda node: _signal_of(code) in _CRASHES and node.has("crash"),
    )
    for is_cause in tests:
        for node in examined:
            if is_cause(node):
                return node
    return first


def _end_text(node: NodeExamined, code: int, collective: str = "") -> str:
    """Return how the node's job ended, and why as far as it is known."""
    texts = [collective] if collective else []
    texts += _reasons(node, code)
    number = _signal_of(code)
    if not texts and number in _MEANINGS:
        texts = [_MEANINGS[number]]
    why = "; ".join(texts[:_MOST])
    if not node.has_failed:  # a process of it ended, and a launcher on another node noticed
        return why
    return f"{exit_text(code)}: {why}" if why else exit_text(code)


def _reasons(node: NodeExamined, code: int) -> list[str]:
    """Return the facts that explain the end, the strongest first."""
    texts: list[str] = []
    for kind in _ORDER:
        is_known = kind == "rank" and bool(texts)  # the rank alone says less than what it did
        if is_known or (kind == "crash" and _signal_of(code) not in _CRASHES):
            continue
        of_kind = [fact.text for fact in node.facts if fact.kind == kind]
        # torch's error file and the output have the same exception.
        texts += of_kind[:1] if kind == "exception" else of_kind
    return texts


def _followed(later: list[NodeExamined], names: list[str]) -> tuple[FollowedFailure, ...]:
    """Return the nodes that failed later; those with the same text are one entry."""
    texts: dict[str, list[str]] = {}
    for examination in later:
        texts.setdefault(_end_text(examination, examination.exit_code), []).append(
            names[examination.rank]
        )
    return tuple(FollowedFailure(tuple(nodes), text) for text, nodes in texts.items())


def _warnings(
    names: list[str], examined: list[NodeExamined], named: Collection[int] = ()
) -> tuple[Finding, ...]:
    """Return a warning for each fact that the reasons of the nodes `named` do not have."""
    return tuple(
        Finding("warning", examination.rank, f"{names[examination.rank]}: {fact.text}")
        for examination in examined
        for fact in examination.facts
        if fact.kind != "clock"  # the run has an event about it
        and (examination.rank not in named or fact.kind not in _ORDER)
    )
