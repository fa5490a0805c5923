"""The contract's dataclasses as JSON data: the way there and back, and what is refused."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.codec import DecodeError, from_json, to_json


@dataclass(frozen=True)
class Leaf:
    name: str
    size: float = 0.5


@dataclass(frozen=True)
class Tree:
    number: int
    leaves: tuple[Leaf, ...]
    state: Literal["green", "bare"]
    best: Leaf | None = None
    labels: dict[str, str] = field(default_factory=dict)
    is_old: bool = False
    document: Any = None


LEAVES = st.builds(Leaf, name=st.text(), size=st.floats(allow_nan=False))
TREES = st.builds(
    Tree,
    number=st.integers(),
    leaves=st.lists(LEAVES).map(tuple),
    state=st.sampled_from(["green", "bare"]),
    best=st.none() | LEAVES,
    labels=st.dictionaries(st.text(), st.text()),
    is_old=st.booleans(),
    document=st.none() | st.dictionaries(st.text(), st.integers()),
)


@given(TREES)
def test_a_value_survives_the_way_through_json(tree: Tree) -> None:
    text = json.dumps(to_json(tree))
    assert from_json(Tree, json.loads(text)) == tree


def test_fields_are_in_the_order_of_their_class() -> None:
    assert list(to_json(Tree(1, (Leaf("a"),), "green"))) == [
        *("number", "leaves", "state", "best", "labels", "is_old", "document"),
    ]


def test_unknown_keys_are_ignored() -> None:
    assert from_json(Leaf, {"name": "a", "colour": "red"}) == Leaf("a")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": "1"}, "Tree.number is no int"),
        ({"number": True}, "Tree.number is no int"),
        ({"number": None}, "Tree.number is no int"),
        ({"leaves": {}}, "Tree.leaves is no list"),
        ({"leaves": [{"size": 1.0}]}, "Tree.leaves Leaf.name is missing"),
        ({"leaves": ["a"]}, "Tree.leaves Leaf is no object"),
        ({"state": "red"}, "Tree.state is none of green, bare"),
        ({"labels": {"a": 1}}, "Tree.labels is no str"),
        ({"labels": []}, "Tree.labels is no object"),
        ({"is_old": 1}, "Tree.is_old is no bool"),
    ],
)
def test_another_form_is_refused_by_the_name_of_its_field(
    change: dict[str, Any], message: str
) -> None:
    data = {**to_json(Tree(1, (Leaf("a"),), "green")), **change}
    with pytest.raises(DecodeError, match=f"^{message}$"):
        from_json(Tree, data)
