"""Wheels that were built once are installed again, and only as they were built."""

from pathlib import Path

import pytest

from lab.images.wheels import ensure_wheels

PARTS = ("horovod==0.28.1", "python3-torch\t1.13.1")


class Source:
    """Counts how often wheels are built."""

    def __init__(self) -> None:
        self.builds = 0

    def build(self, folder: Path) -> None:
        self.builds += 1
        (folder / "horovod-0.28.1-py3-none-any.whl").write_text(f"build {self.builds}")
        (folder / "deepspeed-0.14.5-py3-none-any.whl").write_text("deepspeed")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def test_wheels_are_built_once(scratch: Path) -> None:
    source = Source()
    wheels = ensure_wheels(PARTS, scratch, source.build)
    assert [wheel.name for wheel in wheels] == [
        "deepspeed-0.14.5-py3-none-any.whl",
        "horovod-0.28.1-py3-none-any.whl",
    ]
    assert wheels[0].parents[1] == scratch.parent / "gpuctl/lab/wheels"
    assert ensure_wheels(PARTS, scratch, source.build) == wheels
    assert source.builds == 1


def test_another_version_of_what_they_are_built_on_is_another_build(scratch: Path) -> None:
    source = Source()
    first = ensure_wheels(PARTS, scratch, source.build)
    second = ensure_wheels((PARTS[0], "python3-torch\t2.0"), scratch, source.build)
    assert [wheels[1].read_text() for wheels in (first, second)] == ["build 1", "build 2"]
    assert ensure_wheels(PARTS, scratch, source.build) == first


@pytest.mark.parametrize("damage", ["cut", "missing", "renamed", "more"])
def test_damaged_wheels_are_built_again(scratch: Path, damage: str) -> None:
    source = Source()
    wheel = ensure_wheels(PARTS, scratch, source.build)[1]
    if damage == "cut":
        wheel.write_text("bui")
    elif damage == "missing":
        wheel.unlink()
    elif damage == "renamed":
        wheel.rename(wheel.with_name("horovod-0.28.2-py3-none-any.whl"))
    else:
        wheel.with_name("other-1-py3-none-any.whl").write_text("other")
    again = ensure_wheels(PARTS, scratch, source.build)
    assert [path.name for path in again][1] == "horovod-0.28.1-py3-none-any.whl"
    assert again[1].read_text() == "build 2"
    assert ensure_wheels(PARTS, scratch, source.build) == again
    assert len(list((scratch.parent / "gpuctl/lab/wheels").iterdir())) == 1


def test_a_build_that_fails_leaves_no_wheels(scratch: Path) -> None:
    def cut(folder: Path) -> None:
        (folder / "horovod-0.28.1-py3-none-any.whl").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_wheels(PARTS, scratch, cut)
    assert list((scratch.parent / "gpuctl/lab/wheels").iterdir()) == []
