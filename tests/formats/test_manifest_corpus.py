"""Public manifests of Kubeflow and Volcano: each has the right plan, and no field is unknown."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from config.loading.load import check
from tests.engine.golden import inventory_path
from tests.formats.manifest_corpus import CORPUS, Fact


def test_there_are_thirty_manifests() -> None:
    assert len({fact.source for fact in CORPUS}) == len(CORPUS) >= 30


@pytest.mark.parametrize("fact", CORPUS, ids=lambda fact: fact.source)
def test_a_public_manifest_has_its_plan(tmp_path: Path, fact: Fact) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(fact.text())
    assert [str(one) for one in check(file) if one.severity == "error"] == []
    inventory = tmp_path / "inventory.json"
    inventory.write_text(large_inventory(fact.nodes))
    options = ["--dry-run", "--json", "--inventory", str(inventory)]
    answer = CliRunner().invoke(app, ["run", str(file), *options])
    assert answer.exit_code == 0, answer.output
    plan = json.loads(answer.stdout)
    assert (plan["name"], plan["image"]["reference"]) == ("job", fact.image)
    assert [node["rank"] for node in plan["nodes"]] == list(range(fact.nodes))


def large_inventory(nodes: int) -> str:
    """Return an inventory of so many nodes, made of one of two."""
    document = json.loads(inventory_path(2).read_text())
    first = document["nodes"][0]
    document["nodes"] = [
        {**first, "rank": rank, "name": f"node{rank}", "private_ip": f"10.213.1.{10 + rank}"}
        for rank in range(nodes)
    ]
    return json.dumps(document)
