from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.provider.difference import Difference, differences
from lab.provider.values import UNKNOWN

REPLACING = frozenset({"cidrBlock"})

values = st.recursive(
    st.one_of(st.booleans(), st.integers(0, 99), st.text("abc", min_size=1, max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("xyz", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)
properties = st.dictionaries(st.sampled_from(["cidrBlock", "tags", "routes", "name"]), values)


@pytest.mark.parametrize(
    ("state", "inputs", "found"),
    [
        ({"cidrBlock": "a"}, {"cidrBlock": "b"}, [Difference("cidrBlock", "update", True)]),
        ({"tags": {"a": "1"}}, {"tags": {"a": "2"}}, [Difference("tags.a", "update", False)]),
        ({}, {"tags": {"a:b": "2"}}, [Difference("tags", "add", False)]),
        (
            {"tags": {"x": "1"}},
            {"tags": {"x": "1", "a:b": "2"}},
            [Difference('tags["a:b"]', "add", False)],
        ),
        ({"ids": ["b", "a"]}, {"ids": ["a", "b"]}, []),
        ({"ids": ["a"]}, {"ids": ["a", "b"]}, [Difference("ids[1]", "add", False)]),
        ({"rules": [{"from": 1}]}, {"rules": []}, [Difference("rules", "delete", False)]),
        ({"on": None}, {"on": False}, []),
        ({"ebs": {"encrypted": True}}, {"ebs": {"encrypted": "true"}}, []),
        ({"version": 1}, {"version": "1"}, []),
        ({"name": "a"}, {"name": UNKNOWN}, [Difference("name", "update", False)]),
        ({"publicIp": "198.18.0.1"}, {}, []),
    ],
)
def test_differences_are_named_by_their_path(
    state: dict[str, Any], inputs: dict[str, Any], found: list[Difference]
) -> None:
    assert list(differences(state, {}, inputs, REPLACING)) == found


def test_what_is_asked_for_no_more_is_a_difference() -> None:
    state = {"placement": {"groupName": "g"}}
    assert differences(state, state, {}, REPLACING) == (Difference("placement", "delete", False),)


@given(properties)
def test_what_is_there_as_asked_for_differs_in_nothing(inputs: dict[str, Any]) -> None:
    assert differences(inputs, inputs, inputs, REPLACING) == ()


@given(properties, properties)
def test_only_replacing_properties_replace(old: dict[str, Any], new: dict[str, Any]) -> None:
    for difference in differences(old, old, new, REPLACING):
        assert difference.replace == (difference.property == "cidrBlock")
