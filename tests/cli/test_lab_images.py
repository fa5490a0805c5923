"""`gpuctl lab images` and `make images`: what tests and machines boot is made beforehand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.images import image

ROOT = Path(__file__).parents[2]
GPUCTL = str(Path(sys.executable).with_name("gpuctl"))


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A cache that has every image."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    image.image_path.cache_clear()
    paths = {flavour: image.image_path(flavour) for flavour in image.FLAVOURS}
    image.image_path.cache_clear()
    for path in paths.values():
        path.mkdir(parents=True)
    return {flavour: str(path) for flavour, path in paths.items()}


def output(*command: str, code: int = 0) -> str:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.lab
def test_images_that_are_there_are_shown(paths: dict[str, str]) -> None:
    assert list(paths) == ["stock", "dlami", "frameworks"]
    assert output(GPUCTL, "lab", "images").splitlines() == [
        f"stock       {paths['stock']}",
        f"dlami       {paths['dlami']}",
        f"frameworks  {paths['frameworks']}",
    ]
    assert json.loads(output(GPUCTL, "lab", "images", "--json")) == paths
    assert output(GPUCTL, "lab", "images", "dlami") == f"dlami       {paths['dlami']}\n"


@pytest.mark.lab
def test_make_images_makes_all(paths: dict[str, str]) -> None:
    assert output("scripts/images").count("\n") == len(paths)


def test_tests_wait_for_the_images() -> None:
    order = output("make", "--dry-run", "test").splitlines()
    (tests,) = (n for n, line in enumerate(order) if line.startswith("scripts/test "))
    assert order.index("scripts/images") < tests


def test_an_image_that_is_none_is_one_line() -> None:
    assert output(GPUCTL, "lab", "images", "ubuntu", code=2) == (
        "gpuctl: error: no image 'ubuntu'; images are: stock, dlami, frameworks\n"
    )
