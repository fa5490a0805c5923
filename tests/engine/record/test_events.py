"""A journal's lines as events: unknown kinds are skipped, malformed events are reported."""

import json

import pytest

from engine.contract.events import EVENTS
from engine.contract.head_events import OutputJudged
from engine.contract.worker_events import NodeReady
from engine.record.events import parse_event


def _parse(**fields: object) -> object:
    return parse_event(json.dumps(fields))


def test_an_event_of_a_known_kind() -> None:
    assert _parse(kind="node_ready", time=1.5, rank=2) == NodeReady(time=1.5, rank=2)
    assert {"node_ready", "run_finished", "supervisor_lost"} <= EVENTS.keys()


def test_an_event_of_a_kind_to_come_is_skipped() -> None:
    assert _parse(kind="node_levitates", time=1.5, rank=2) is None
    assert _parse(time=1.5) is None
    assert parse_event("[]") is None


def test_a_malformed_event_is_a_warning_of_the_run() -> None:
    assert _parse(kind="node_exited", time=1.5, rank=2, exit_code="secret") == OutputJudged(
        time=1.5,
        rank=2,
        level="warning",
        text="the head sent a malformed event `node_exited`, which is left out: exit_code: Input"
        " should be a valid integer, unable to parse string as an integer; the head may have"
        " another version of gpuctl",
    )
    nothing = _parse(kind="run_finished")
    assert isinstance(nothing, OutputJudged)
    assert (nothing.time, nothing.rank) == (0.0, 0)


@pytest.mark.parametrize("line", ["", '{"kind": "node_re'])
def test_a_line_that_is_no_event_is_damage(line: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        parse_event(line)
