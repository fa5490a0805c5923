"""Exit codes mean the same in every command."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.main import app
from config.errors import ExitCode
from tests.cli.test_command import ROOT, gpuctl

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs/look-up/exit-codes.md"

WORDS = {
    "CLUSTER": "nosuch",
    "RUN": "nosuch",
    "RUN…": "nosuch",
    "DURATION": "2h",
    "SOURCE": "node0:/x",
    "TARGET": ".",
}
"""A word for an argument; no cluster and no run has the name."""

ASKS_AWS = "status"  # which shows clusters of others too


def commands_about_something() -> list[list[str]]:
    """Return each command whose first argument is a cluster or a run, with words for all."""
    root: Any = typer.main.get_command(app)
    lines = []
    for name, command in root.commands.items():
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        names = [each.metavar or each.name.upper() for each in arguments]
        if names and names[0] in WORDS and name != ASKS_AWS:
            required = [word for word, each in zip(names, arguments, strict=True) if each.required]
            words = required if arguments[0].required else [names[0], *required]
            lines.append([name, *(WORDS.get(word, "x") for word in words)])
    return lines


@pytest.mark.parametrize("line", commands_about_something(), ids=" ".join)
def test_an_unknown_cluster_or_run_is_wrong_input(line: list[str], tmp_path: Path) -> None:
    done = gpuctl("--region", "us-east-1", *line, home=tmp_path)
    assert done.returncode == ExitCode.INPUT, done.stderr
    assert re.fullmatch(r"gpuctl: error: .*nosuch.*\n", done.stderr)


def test_the_page_has_every_code() -> None:
    documented = set(re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE))
    assert {str(code.value) for code in ExitCode} <= documented


def test_plan_has_terraforms_codes_on_demand(tmp_path: Path) -> None:
    line = ("--region", "us-east-1", "plan", "nosuch.yaml")
    assert gpuctl(*line, home=tmp_path).returncode == 2
    assert gpuctl(*line, "--detailed-exitcode", home=tmp_path).returncode == 1
