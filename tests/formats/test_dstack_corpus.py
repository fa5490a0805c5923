"""Task files of dstack's repository, each by `run --dry-run`: the plan, or the exact refusal."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.main import app
from config.catalogue.instance_types import catalogue
from config.errors import InputError, InvalidFiles
from nodes.inventory import save
from tests.engine.conftest import make_inventory

FACTS = yaml.load((Path(__file__).parent / "dstack_facts.yaml").read_text(), yaml.CSafeLoader)
FITTING = [fact for fact in FACTS if "on" in fact and "misfit" not in fact]
MISFITS = [fact for fact in FACTS if "misfit" in fact]
REFUSED = [fact for fact in FACTS if "refused" in fact]
MORE_NODES = 6


def written(folder: Path, fact: dict[str, Any]) -> Path:
    """The fact's file, with commands that do nothing."""
    data: dict[str, Any] = {"type": "task", **deepcopy(fact["file"])}
    for part in data.get("groups", [data]):
        part["commands"] = commands(fact, part["commands"])
    file = folder / "a" / "b" / "task.dstack.yml"
    file.parent.mkdir(parents=True)
    for entry in data.get("files", ()):
        local = file.parent / Path(entry.partition(":")[0]).expanduser()
        if not local.is_dir():
            local.parent.mkdir(parents=True, exist_ok=True)
            local.touch()
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return file


def commands(fact: dict[str, Any], count: int) -> list[str]:
    first = "pip install train" if fact.get("pip") else "true"
    return [first, *(f"echo {number}" for number in range(1, count))]


def dry_run(folder: Path, fact: dict[str, Any]) -> Result:
    """The dry run on six nodes of the fact's type."""
    instance_type = fact.get("on", "p5.48xlarge")
    inventory = make_inventory(MORE_NODES, catalogue()[instance_type].gpu.count)
    save(inventory.model_copy(update={"instance_type": instance_type}), folder / "there.json")
    options = ["--dry-run", "--json", "--inventory", str(folder / "there.json")]
    return CliRunner().invoke(app, ["run", str(written(folder, fact)), *options])


def own_commands(script: str) -> int:
    """How many entries of the commands a script has."""
    return script.count("\ngpuctl_next $? ")


def groups(file: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each node's part of the file."""
    for group in file.get("groups", [file]):
        yield from [group] * group.get("nodes", 1)


def test_the_table_is_large_enough() -> None:
    several = [
        fact for fact in FACTS if "groups" in fact["file"] or fact["file"].get("nodes", 1) > 1
    ]
    assert (len(several), len(FACTS)) >= (40, 70)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a home of the test's own: some tasks send files of it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("fact", FITTING, ids=lambda fact: fact["from"])
def test_a_file_that_aws_can_run_is_planned(tmp_path: Path, fact: dict[str, Any]) -> None:
    answer = dry_run(tmp_path, fact)
    assert answer.exit_code == 0, answer.exception
    plan, file = json.loads(answer.stdout), fact["file"]
    parts = list(groups(file))
    assert [node["rank"] for node in plan["nodes"]] == list(range(len(parts)))
    assert plan["name"] == file.get("name", "task")
    assert (plan["image"] or {}).get("reference") == file.get("image")
    assert plan["startup_order"] == file.get("startup_order", "any")
    assert plan["stop_criteria"] == file.get("stop_criteria", "all-done")
    bare = [entry for entry in file.get("env", ()) if "=" not in entry]
    texts = dict(entry.split("=", 1) for entry in file.get("env", ()) if "=" in entry)
    for node, part in zip(plan["nodes"], parts, strict=True):
        count = 1 if "entrypoint" in file else max(part["commands"], 1)
        assert own_commands(node["script"]) == count
        assert node["secrets"] == {name: name for name in bare}
        assert texts.items() <= node["environment"].items()
        assert node["environment"]["DSTACK_NODES_NUM"] == str(len(parts))
        assert node["environment"]["DSTACK_NODE_RANK"] == str(node["rank"])


@pytest.mark.parametrize("fact", MISFITS, ids=lambda fact: fact["from"])
def test_a_file_for_other_nodes_is_refused(tmp_path: Path, fact: dict[str, Any]) -> None:
    error = dry_run(tmp_path, fact).exception
    assert isinstance(error, InputError)
    assert str(error).splitlines() == fact["misfit"].splitlines()


@pytest.mark.parametrize("fact", REFUSED, ids=lambda fact: fact["from"])
def test_a_file_that_aws_cannot_run_is_refused(tmp_path: Path, fact: dict[str, Any]) -> None:
    error = dry_run(tmp_path, fact).exception
    assert isinstance(error, InvalidFiles)
    assert [f"{one.code} {one.message}; {one.hint}" for one in error.diagnostics] == fact["refused"]
