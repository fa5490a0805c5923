"""The wheel of `uv build` is an application that runs without the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HOME = Path(__file__).parent.parent
ROOMS = (
    "cli",
    "config",
    "engine",
    "formats",
    "gpuctl",
    "infra",
    "lab",
    "nodes",
    "operations",
    "provision",
    "stacks",
)


def _uv(*words: str | Path) -> None:
    uv = subprocess.check_output([HOME / "scripts/uv"], text=True).strip()
    # `make install` has put all that a build needs into uv's cache: no test asks PyPI
    subprocess.run([uv, *words, "--quiet", "--offline"], cwd=HOME, check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _uv("build", "--wheel", "--out-dir", folder)
    (built,) = folder.glob("*.whl")
    return built


def test_the_distribution_is_gpuctl_cluster(wheel: Path) -> None:
    assert wheel.name == "gpuctl_cluster-0.1.0-py3-none-any.whl"


def test_the_wheel_has_every_file_of_the_rooms(wheel: Path) -> None:
    tracked = subprocess.check_output(["git", "ls-files", *ROOMS], cwd=HOME, text=True).split()
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert len(tracked) > 200
    assert [path for path in tracked if path not in packed and (HOME / path).exists()] == []


def test_the_types_of_the_python_api_reach_its_users(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    typed = [room for room in ROOMS if room not in ("cli", "stacks")]
    assert [room for room in typed if f"{room}/py.typed" not in packed] == []


def test_the_wheel_has_nothing_that_builds_pulumis_engine(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert [name for name in names if name.startswith("scripts/")] == []
    assert [name for name in names if name.endswith((".go", "go.mod", "go.sum"))] == []


def test_the_installed_command_runs_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "installed"
    _uv("pip", "install", "--no-deps", "--python", sys.executable, "--target", home, wheel)

    def gpuctl(*words: str) -> str:
        alone = os.environ | {"PYTHONPATH": str(home)}  # its rooms come before the checkout's
        command = [str(home / "bin/gpuctl"), *words]
        output: str = subprocess.check_output(command, cwd=tmp_path, env=alone, text=True)
        return output

    assert gpuctl("--version") == "gpuctl 0.1.0\n"
    assert gpuctl("validate", "installed/stacks/demo.yaml") == "installed/stacks/demo.yaml: ok\n"
    assert gpuctl("explain", "E101").startswith("E101: diagnostic\n")
    assert gpuctl("docs") == f"{home / 'gpuctl/docs/index.md'}\n"
    assert (home / "gpuctl/docs/index.md").is_file()
