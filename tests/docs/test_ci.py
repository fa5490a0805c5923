"""The page about CI: what its workflow and its hook call exists, and the hook refuses bad files."""

import json
import shlex
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from cli.main import app
from config.errors import InputError
from tests.docs.gpuctl_words import complaints
from tests.docs.pages import HOME, blocks

PAGE = "docs/do/ci.md"
STACK = str(HOME / "stacks/p5-2node.yaml")


def _documents(language: str) -> list[Any]:
    return [yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == language]


def test_the_workflows_commands_are_gpuctls() -> None:
    _, workflow = _documents("yaml")
    steps = workflow["jobs"]["train"]["steps"]
    words = [shlex.split(step["run"]) for step in steps if step.get("run", "").startswith("gpuctl")]
    assert [line[1] for line in words] == ["up", "run", "down"]
    assert [mistake for line in words for mistake in complaints(line[1:])] == []
    assert [step["if"] for step in steps if step.get("run", "").startswith("gpuctl down")] == [
        "always()"
    ]


def test_the_roles_policy_trusts_one_branch() -> None:
    (block,) = (block for block in blocks(PAGE) if block.language == "json")
    (statement,) = json.loads(block.text)["Statement"]
    subject = statement["Condition"]["StringEquals"]["token.actions.githubusercontent.com:sub"]
    assert subject == "repo:ORG/REPO:ref:refs/heads/main"


def test_the_hook_checks_files(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((HOME / ".pre-commit-hooks.yaml").read_text())
    asked, _ = _documents("yaml")
    assert [each["id"] for each in asked["repos"][0]["hooks"]] == [hook["id"]]
    program, *words = hook["entry"].split()
    assert program == "gpuctl"
    assert CliRunner().invoke(app, [*words, STACK]).exit_code == 0
    other = tmp_path / "other.yaml"
    other.write_text("some: thing\n")
    refused = CliRunner().invoke(app, [*words, STACK, str(other)])
    assert isinstance(refused.exception, (InputError, SystemExit))
    assert refused.exit_code != 0
