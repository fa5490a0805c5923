"""Secrets in a job's output: whatever the pieces in which it comes, none of them is shown."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.journal.redaction import Redaction
from engine.contract.worker_events import Output
from tests.engine.conftest import LocalCluster, make_plan, when

pytestmark = pytest.mark.slow

TOKEN = "hf_0123456789"
LONGER = TOKEN + "abc"
LINES = "first line of a key\nsecond line of it"


def shown(values: list[str], *pieces: str) -> str:
    redaction = Redaction(values)
    return "".join(redaction.feed(piece) for piece in pieces) + redaction.rest()


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([f"a {TOKEN} b"], "a *** b"),
        ([f"a {TOKEN[:4]}", f"{TOKEN[4:]} b"], "a *** b"),
        ([TOKEN[:4]], TOKEN[:4]),
        ([TOKEN[:4], "x"], TOKEN[:4] + "x"),
        ([TOKEN, "abc"], "***"),
        ([TOKEN, "abX"], "***abX"),
        ([TOKEN], "***"),
        ([f"{TOKEN}{TOKEN}"], "******"),
        (["key:\n" + LINES[:25], LINES[25:] + "\n"], "key:\n***\n"),
    ],
)
def test_values_are_not_shown(pieces: list[str], expected: str) -> None:
    assert shown([TOKEN, LONGER, LINES], *pieces) == expected


def test_only_what_may_still_become_longer_is_held_back() -> None:
    assert Redaction([TOKEN]).feed(f"a {TOKEN}") == "a ***"
    assert Redaction([TOKEN, LONGER]).feed(f"a {TOKEN}") == "a "


def test_what_is_shorter_than_eight_characters_is_left_alone() -> None:
    assert shown(["1234567", ""], "1234567") == "1234567"
    assert shown(["12345678"], "12345678") == "***"


SECRETS = st.lists(st.text("ab", min_size=8, max_size=10), min_size=1, max_size=3)


@given(SECRETS, st.data())
def test_secrets_in_pieces_are_not_shown(values: list[str], data: st.DataObject) -> None:
    """Every text has secrets, and cuts in the middle of them."""
    parts = data.draw(st.lists(st.sampled_from(values) | st.text("abc", max_size=2), max_size=6))
    text = values[0].join(("c", *parts, "c"))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), min_size=1, max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert shown(values, *pieces) == shown(values, text)
    assert not any(value in shown(values, *pieces) for value in values)


@given(st.text("abc", max_size=40))
def test_without_secrets_nothing_changes_or_waits(text: str) -> None:
    redaction = Redaction([])
    assert (redaction.feed(text), redaction.rest()) == (text, "")


def test_a_value_in_a_line_that_takes_its_time(cluster: LocalCluster) -> None:
    """The line is shown while it waits, but not the part that may be a secret's beginning."""
    seen = cluster.folder / "seen"
    command = f"printf 'token {TOKEN[:5]}'; {when(str(seen))}; echo '{TOKEN[5:]}'"
    plan = make_plan(nodes=1, commands=(command,))
    node = replace(plan.nodes[0], secrets={"UNUSED": "MY_TOKEN"})
    plan = replace(plan, nodes=(node,))
    verdict = cluster.execute_until(plan, "token ", seen, {"MY_TOKEN": TOKEN})
    assert verdict.status == "done"
    pieces = [event.text for event in cluster.events() if isinstance(event, Output)]
    assert pieces == ["token ", "***"]
    assert (cluster.folder / "node0" / "rank-0.log").read_text() == "token ***\n"
