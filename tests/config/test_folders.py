"""Paths that a person writes with `~`."""

from pathlib import Path

import pytest

from config.errors import InputError
from config.folders import state_home, user_path


@pytest.mark.parametrize(
    ("text", "path"),
    [("~/x", "{home}/x"), ("~", "{home}"), ("/a/~b", "/a/~b"), ("a", "a")],
)
def test_a_home_is_meant_at_the_beginning_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, path: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path(text) == Path(path.format(home=tmp_path))


def test_the_home_of_nobody_is_wrong_input(monkeypatch: pytest.MonkeyPatch) -> None:
    message = (
        "'~no-such-user/x' begins with '~no-such-user', and this machine has no such home folder;"
        " correct the path"
    )
    monkeypatch.setenv("GPUCTL_STATE", "~no-such-user/x")
    with pytest.raises(InputError) as error:
        user_path("~no-such-user/x")
    assert str(error.value) == message
    with pytest.raises(InputError) as error:
        state_home()
    assert str(error.value) == message
