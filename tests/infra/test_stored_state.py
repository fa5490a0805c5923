"""The state in the backend's folder, as far as gpuctl reads it itself."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra.pulumi_engine.stored_state import read_deployment, stack_outputs, write_empty_state

STACK = {"type": "pulumi:pulumi:Stack", "outputs": {"fleet": {"nodes": []}}}
LATEST: dict[str, Any] = {
    "resources": [{"type": "aws:ec2/vpc:Vpc", "outputs": {"id": "vpc-1"}}, STACK],
    "pending_operations": [{"type": "creating"}],
}
STORED = {"version": 3, "checkpoint": {"stack": "organization/gpuctl/demo", "latest": LATEST}}


def test_the_deployment_is_read_with_what_a_killed_engine_left(tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    file.write_text(json.dumps(STORED))
    (tmp_path / "demo.json.bak").write_text("{")  # Pulumi's copy of the state before
    assert read_deployment(file) == LATEST


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="cut"),
        pytest.param("[]", id="no state"),
        pytest.param(json.dumps(STORED | {"version": 2}), id="an old version"),
        pytest.param(json.dumps(STORED | {"version": 4, "features": ["x"]}), id="a new one"),
        pytest.param(json.dumps(STORED | {"features": ["x"]}), id="features"),
        pytest.param(json.dumps({"version": 3, "checkpoint": {"latest": None}}), id="nothing yet"),
        pytest.param(json.dumps({"version": 3, "checkpoint": None}), id="no checkpoint"),
    ],
)
def test_pulumi_is_asked_about_what_gpuctl_does_not_know(tmp_path: Path, text: str) -> None:
    file = tmp_path / "demo.json"
    file.write_text(text)
    assert read_deployment(file) is None


def test_a_new_stack_is_empty_and_an_older_one_stays(tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    write_empty_state(file, "organization/gpuctl/demo")
    assert json.loads(file.read_text()) == {
        "version": 3, "checkpoint": {"stack": "organization/gpuctl/demo"},
    }  # fmt: skip
    assert read_deployment(file) == {}
    file.write_text(json.dumps(STORED))
    write_empty_state(file, "organization/gpuctl/demo")
    assert read_deployment(file) == LATEST
    file.rename(tmp_path / "demo.json.zst")
    write_empty_state(file, "organization/gpuctl/demo")
    assert [path.name for path in tmp_path.iterdir()] == ["demo.json.zst"]


def test_pulumi_is_asked_about_a_missing_or_compressed_state(tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    assert read_deployment(file) is None
    file.write_text(json.dumps(STORED))
    (tmp_path / "demo.json.gz").touch()
    assert read_deployment(file) is None


def test_outputs_are_the_stacks_own() -> None:
    assert stack_outputs(LATEST) == {"fleet": {"nodes": []}}
    assert stack_outputs({"resources": [{"type": "pulumi:pulumi:Stack"}]}) == {}
    assert stack_outputs({"metadata": {}}) == {}
