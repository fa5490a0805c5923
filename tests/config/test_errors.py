"""An error with another hint is of the same class, and the first one stays as it is."""

import pytest

from config.errors import BrokenNodes, NodeError


@pytest.mark.parametrize(
    ("hint", "expected"), [("read its log", "read its log\nrun heal"), ("", "run heal")]
)
def test_an_added_hint_follows_the_one_that_the_error_has(hint: str, expected: str) -> None:
    error = BrokenNodes("node1 is broken", hint, {"node1": "no driver"})
    longer = error.with_added_hint("run heal", "\n")
    assert type(longer) is BrokenNodes
    assert (longer.message, longer.hint, longer.causes) == (error.message, expected, error.causes)
    assert error.hint == hint


def test_an_error_with_another_hint_keeps_its_message() -> None:
    error = NodeError("node1 does not answer", "wait").with_hint("ask for its console")
    assert str(error) == "node1 does not answer; ask for its console"
    assert error.args == ("node1 does not answer",)
