"""Help of every command: its golden text is docs/look-up/cli.md, written at 80 columns."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cli.command_reference import PAGE, page, paths
from cli.main import app

ROOT = Path(__file__).parents[2]
COMMAND = typer.main.get_command(app)
PATHS = [[], *paths(COMMAND)]


def help_of(path: list[str]) -> str:
    width = {"COLUMNS": "80", "TERMINAL_WIDTH": "80"}
    done = CliRunner().invoke(app, [*path, "--help"], prog_name="gpuctl", env=width)
    assert done.exit_code == 0
    return done.output


def at(path: list[str]) -> Any:
    command: Any = COMMAND
    for name in path:
        command = command.commands[name]
    return command


def test_the_cli_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


def test_the_page_has_commands_of_every_depth() -> None:
    assert ["lab", "fault", "set"] in PATHS
    assert ["ssm-proxy"] not in PATHS, "it is not for people"
    for path in PATHS:
        assert f"## {' '.join(['gpuctl', *path])}\n" in PAGE.read_text()


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_no_line_is_cut_off_or_too_long(path: list[str]) -> None:
    for line in help_of(path).splitlines():
        assert len(line) <= 80, line
        assert line.startswith("Usage: ") or not line.endswith("..."), line


@pytest.mark.parametrize("path", [path for path in PATHS if path], ids=" ".join)
def test_a_command_is_one_line_of_its_group(path: list[str]) -> None:
    lines = help_of(path[:-1]).splitlines()
    assert any(line.split() == [path[-1], *at(path).get_short_help_str().split()] for line in lines)


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_command_has_an_example_and_a_page_that_exists(path: list[str]) -> None:
    text = help_of(path)
    _, _, examples = text.partition("Examples:\n")
    words = " ".join(["gpuctl", *path])
    assert examples.startswith(f"  {words} ") or examples.startswith(f"  {words}\n")
    address = text.splitlines()[-1].removeprefix("Documentation: ")
    assert (ROOT / address).is_file()


def test_commands_are_grouped() -> None:
    lines = help_of([]).splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "Clusters:",
        "Runs:",
        "Files:",
        "This machine:",
        "Target, before or after the command:",
        "Output, before or after the command:",
        "Options:",
        "Examples:",
    ]
    assert "  --lab[=NAME]     Rehearse on this machine: in the lab, or in the lab NAME." in lines
