"""Node names folded and expanded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InputError
from config.folded_names import expand, fold

DIGITS = "9" * 5000


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ((), ""),
        (("node3",), "node3"),
        (("node1", "node0"), "node[0-1]"),
        (("node5", "node0", "node3", "node1", "node2"), "node[0-3,5]"),
        (("node0", "bastion"), "bastion,node0"),
        (("node10", "node9", "node9"), "node[9-10]"),
        (("node007", "node8"), "node007,node8"),
    ],
)
def test_fold(names: tuple[str, ...], folded: str) -> None:
    assert fold(names) == folded


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node3", ("node3",)),
        ("node[0-2,5],bastion", ("node0", "node1", "node2", "node5", "bastion")),
        ("node1, node0", ("node1", "node0")),
        ("node[1,1],node1", ("node1",)),
        ("node[3-3]", ("node3",)),
        ("gpu[1-2].example.org", ("gpu1.example.org", "gpu2.example.org")),
    ],
)
def test_expand(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a list of node names"),
        ("node[0-1", "'node[0-1' is not a list of node names"),
        ("node[3-1]", "'3-1' in 'node[3-1]' is not a range"),
        ("node[1-]", "'1-' in 'node[1-]' is not a range"),
        (f"node[{DIGITS}]", f"'{DIGITS}' in 'node[{DIGITS}]' is not a range"),
        ("node[0-999999999]", "'node[0-999999999]' means more than 10000 nodes"),
    ],
)
def test_what_is_not_a_list_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        expand(text)
    assert caught.value.message == message


@given(st.sets(st.from_regex(r"[a-z]{1,3}([0-9]{1,4})?", fullmatch=True), min_size=1))
def test_expand_undoes_fold(names: set[str]) -> None:
    assert set(expand(fold(names))) == names
