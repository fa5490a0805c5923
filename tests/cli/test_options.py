"""Options of all commands: before and after the command, never inside of somebody else's."""

import os
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from cli.main import app
from cli.options import Options, chosen_target, output
from cli.parser import Command, CommandForNode, CommandForNodes, CommandGroup, own_words
from cli.render import exec_output
from config.errors import StateError
from nodes.answers import Completed
from tests.cli.test_command import gpuctl


def heard(*words: str) -> tuple[Options, list[str]]:
    """What a command of each kind hears of the shared options, and its own words."""
    parsed: list[tuple[Options, list[str]]] = []
    trial = typer.Typer(cls=CommandGroup, rich_markup_mode=None)
    # the root's options are those of `gpuctl` itself
    assert app.registered_callback is not None
    assert app.registered_callback.callback is not None
    trial.callback()(app.registered_callback.callback)

    def up(
        context: typer.Context, file: str, yes: Annotated[bool, typer.Option("--yes")] = False
    ) -> None:
        parsed.append((context.find_root().obj, [file, *(["--yes"] if yes else [])]))

    def exec_(context: typer.Context, cluster: str, command: list[str]) -> None:
        parsed.append((context.find_root().obj, [cluster, *command]))

    def ssh(
        context: typer.Context,
        cluster: str,
        node: Annotated[str, typer.Argument()] = "node0",
        command: Annotated[list[str] | None, typer.Argument()] = None,
    ) -> None:
        parsed.append((context.find_root().obj, [cluster, node, *(command or [])]))

    trial.command("up", cls=Command)(up)
    trial.command("exec", cls=CommandForNodes)(exec_)
    trial.command("ssh", cls=CommandForNode)(ssh)
    done = CliRunner().invoke(trial, list(words))
    assert done.exit_code == 0, done.output
    return parsed[0]


@pytest.mark.parametrize(
    "line",
    [
        "--lab --region r --json -q up file --yes",
        "up --lab --region r --json -q file --yes",
        "up file --yes --lab --region=r --json --quiet",
        "--region other --lab up file --region r --yes -q --json",
        "--json --lab up -q --yes --region r -- file",
    ],
)
def test_options_stand_before_and_after_the_command(line: str) -> None:
    given, own = heard(*line.split())
    assert given == Options(lab=True, region="r", as_json=True, quiet=True, command="up")
    assert own == ["file", "--yes"]


@pytest.mark.parametrize(
    "line",
    [
        "--lab=b up file",
        "up file --lab=b",
        "--lab-name b up file",
        "up --lab-name=b file",
        "--lab up file --lab=b",
        "--lab=a up file --lab-name b",
    ],
)
def test_a_lab_is_named_in_three_ways(line: str) -> None:
    given, _ = heard(*line.split())
    assert given.places is not None
    assert given.places.name == "b"


def test_a_lab_without_a_name_is_the_default_one() -> None:
    given, _ = heard("up", "file", "--lab")
    assert given.places is not None
    assert given.places.is_default


@pytest.mark.parametrize("words", [("--lab=", "status"), ("status", "--lab-name", "")])
def test_an_empty_name_is_no_name_and_never_means_aws(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    done = gpuctl(*words, home=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gpuctl: error: '' is no name for a lab; use 1 to 16 ")


@pytest.mark.parametrize(
    ("line", "region", "own"),
    [
        ("exec demo -- cmd --region x", None, "demo cmd --region x"),
        ("exec demo cmd --region x", None, "demo cmd --region x"),
        ("exec demo --region y cmd --region x", "y", "demo cmd --region x"),
        ("exec --region y demo cmd -- --lab", "y", "demo cmd -- --lab"),
        ("exec demo -x --region x", None, "demo -x --region x"),
        ("--region y exec demo -- --region x", "y", "demo --region x"),
        ("ssh demo --region y", "y", "demo node0"),
        ("ssh demo node1 --region y", "y", "demo node1"),
        ("ssh demo node1 --region y uptime --region x", "y", "demo node1 uptime --region x"),
        ("ssh demo node1 -- -N --region x", None, "demo node1 -N --region x"),
        ("ssh demo node1 -N --region x", None, "demo node1 -N --region x"),
        ("up -- --region", None, "--region"),
    ],
)
def test_what_belongs_to_another_command_is_passed_on(
    line: str, region: str | None, own: str
) -> None:
    given, words = heard(*line.split())
    assert (given.region, " ".join(words)) == (region, own)


def test_words_of_ours_end_where_a_value_is_missing() -> None:
    assert own_words(["up", "--region"], {"--region": True}, 5) == 2


def test_a_missing_value_is_said_by_the_option(tmp_path: Path) -> None:
    done = gpuctl("status", "--region", home=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("Error: Option '--region' requires an argument.\n")


def test_ssh_has_no_json_form(tmp_path: Path) -> None:
    for words in (("--json", "ssh", "demo"), ("ssh", "--json", "demo")):
        done = gpuctl(*words, home=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
    done = gpuctl("--json", "ssh", "demo", home=tmp_path)
    assert done.stderr.endswith("Error: `gpuctl ssh` has no JSON form; leave --json out.\n")


def test_a_command_of_a_group_takes_them_at_every_place(tmp_path: Path) -> None:
    for words in (
        ("--lab=t-down", "lab", "status"),
        ("lab", "--lab=t-down", "status"),
        ("lab", "status", "--lab=t-down"),
    ):
        done = gpuctl(*words, home=tmp_path)
        assert done.stdout.splitlines()[0] == "Lab t-down is down."


def test_session_and_output_are_made_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    trial = typer.Typer(cls=CommandGroup, rich_markup_mode=None)
    assert app.registered_callback is not None
    assert app.registered_callback.callback is not None
    trial.callback()(app.registered_callback.callback)

    def look(context: typer.Context) -> None:
        seen.append((chosen_target(context), output(context)))

    trial.command("look", cls=Command)(look)
    words = "look --profile p --backend s3://b --region r --json --quiet --no-color --raw"
    umask = os.umask(0o077)
    try:
        assert CliRunner().invoke(trial, words.split()).exit_code == 0
    finally:
        os.umask(umask)
    ((here, out),) = seen
    assert (here.lab, here.region, here.profile, here.backend) == (None, "r", "p", "s3://b")
    assert (out.as_json, out.is_quiet, out.no_color, out.is_raw) == (True, True, True, True)


def test_nothing_of_the_command_line_imports_in_a_circle() -> None:
    """Nothing of `cli` imports the door in front of it."""
    import ast

    import cli

    folder = Path(cli.__file__).parent
    imports = {
        ".".join(path.relative_to(folder.parent).with_suffix("").parts): {
            name
            for node in ast.walk(ast.parse(path.read_text()))
            for name in _imported(node)
            if name == "gpuctl" or name.startswith("cli.")
        }
        for path in folder.rglob("*.py")
    }
    assert not [name for name, found in imports.items() if "gpuctl" in found]
    known: set[str] = set()
    while ready := {name for name in imports.keys() - known if imports[name] <= known}:
        known |= ready
    assert imports.keys() - known == set()


def _imported(node: object) -> list[str]:
    import ast

    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module in ("cli", "cli.commands", "cli.render"):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


@pytest.mark.parametrize(
    ("options", "program"),
    [
        ({}, "gpuctl"),
        ({"lab": True}, "gpuctl --lab"),
        ({"lab": True, "lab_name": "b"}, "gpuctl --lab-name b"),
        (
            {"region": "us-west-2", "profile": "a b", "backend": "s3://team/gpu"},
            "gpuctl --region us-west-2 --profile 'a b' --backend s3://team/gpu",
        ),
    ],
)
def test_commands_in_messages_have_the_targets_options(
    options: dict[str, Any], program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Options(**options).output
    out.warn("run `gpuctl down demo`, or `gpuctl up FILE`; gpuctl needs `gpuctl --lab doctor`")
    out.note("`gpuctl lab start` starts a lab")
    shown = capsys.readouterr()
    assert shown.err == (
        f"gpuctl: warning: run `{program} down demo`, or `{program} up FILE`;"
        " gpuctl needs `gpuctl --lab doctor`\n"
    )
    assert shown.out == "`gpuctl lab start` starts a lab\n"


def test_an_error_of_a_node_has_the_targets_options(capsys: pytest.CaptureFixture[str]) -> None:
    out = Options(lab=True, lab_name="b").output
    gone = StateError("node1 is gone", "`gpuctl heal demo` makes it again")
    code = exec_output.show({"node0": Completed(0, "`gpuctl ps`\n", ""), "node1": gone}, out)
    assert code == exec_output.UNREACHABLE
    assert capsys.readouterr().out == (
        "--- node0\n`gpuctl ps`\n"
        "--- node1: exit code 255\nnode1 is gone; `gpuctl --lab-name b heal demo` makes it again\n"
    )


def test_a_hint_of_an_error_has_the_region_that_was_given(tmp_path: Path) -> None:
    refused = gpuctl("--region", "eu-west-1", "extend", "demo", "2h", home=tmp_path)
    assert refused.stderr == (
        "gpuctl: error: there is no cluster 'demo';"
        " `gpuctl --region eu-west-1 up FILE` creates one\n"
    )
