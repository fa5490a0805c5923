"""A run on the terminal, event by event."""

import pytest

from cli.run_view import RunView
from engine.events import NodeInterrupted
from tests.engine.conftest import make_plan

NOTICE = NodeInterrupted(time=1795162145.0, rank=1, action="terminate", at="2026-11-20T08:11:01Z")


@pytest.mark.parametrize(
    ("at", "when"),
    [
        ("2026-11-20T08:11:01Z", "08:11:01 UTC, in 1m 56s"),
        ("2026-11-20T08:09:00Z", "08:09:00 UTC, in 0s"),
        ("soon", "soon"),
    ],
)
def test_a_notice_says_which_node_what_when_and_what_follows(
    capsys: pytest.CaptureFixture[str], at: str, when: str
) -> None:
    RunView(make_plan(), as_json=False).event(NOTICE.model_copy(update={"at": at}))
    assert capsys.readouterr().out == (
        f"-- rank 1: AWS takes node1's spot instance back: terminate at {when};"
        " the run fails then, unless it ends before\n"
    )


def test_a_notice_is_an_event_of_the_json_stream(capsys: pytest.CaptureFixture[str]) -> None:
    RunView(make_plan(), as_json=True).event(NOTICE)
    assert capsys.readouterr().err == (
        '{"kind":"node_interrupted","time":1795162145.0,"rank":1,"action":"terminate",'
        '"at":"2026-11-20T08:11:01Z"}\n'
    )
