"""Every command in README and docs is run, or read by the program's own parser.

A command that no check knows fails: nothing is skipped without a reason in `UNCHECKED`.
"""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import botocore.session
import pytest
from botocore import xform_name
from typer.testing import CliRunner

from cli.main import app
from config.cluster.cluster_file import Cluster
from config.loading.load import check, load_any_cluster, load_cluster, load_run
from engine.plan.modes.job import node_range
from engine.plan.proposal import propose
from lab.fault_kinds import parse
from tests.docs.gpuctl_words import PLACEHOLDERS, complaints, parsed, spelled_out
from tests.docs.pages import HOME, PAGES, Block, Command, blocks, commands, spans

COMMANDS = [each for page in PAGES for block in blocks(page) for each in commands(block)]

UNCHECKED = {
    "cd": "it changes the reader's folder",
    "export": "it sets the reader's environment; the names are those of AWS's own tools",
    "git": "it needs a server that has the repository",
    "uv": "tests/test_wheel.py builds the wheel and installs it",
}
"""Programs whose commands no test runs, each with the reason."""

OTHERS_FILES = {"docs/do/ci.md": "files of pre-commit and GitHub, read in test_ci.py"}
"""Pages whose YAML is not gpuctl's, and what reads it."""

CHEAP = ("iam-policy", "schema", "templates", "validate")
"""Commands of gpuctl that ask nobody and change nothing: they are run."""

_ABOVE = (
    "",
    "name: demo\nnodes: 2\ninstance_type: g6.8xlarge\n",
    "type: task\nname: demo\nnodes: 2\ncommands: [hostname]\n",
    "type: task\nname: demo\nnodes: 2\n",
)
"""What makes a file of a piece that a page shows: nothing, a cluster's keys, or a run's."""

Folder = Callable[[str], Path]


def _of(program: str) -> pytest.MarkDecorator:
    found = [each for each in COMMANDS if re.match(rf"{program}( |$)", each.text)]
    assert found, f"no page has a command of {program}"
    return pytest.mark.parametrize("command", found, ids=lambda each: each.name)


def test_every_command_has_a_check_or_a_reason() -> None:
    checked = r"(gpuctl|make|aws|echo|python|scripts/\S+|\.venv/bin/(python|pytest|gpuctl))( |$)"
    rest = [each for each in COMMANDS if not re.match(checked, each.text)]
    assert [each.name for each in rest if each.text.split()[0] not in UNCHECKED] == []
    assert {each.text.split()[0] for each in rest} == set(UNCHECKED)
    assert len(COMMANDS) > 60


@_of(r"(\.venv/bin/)?gpuctl")
def test_gpuctl(command: Command, folder_of: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(command.block.page)
    monkeypatch.chdir(folder)
    words = shlex.split(spelled_out(command.text))[1:]
    words = words[: words.index(">")] if ">" in words else words
    if "--version" in words or words[0] in CHEAP:
        # In this process: what starts it is tested in tests/cli, and a start takes half a second.
        for name in ("HOME", "XDG_CONFIG_HOME"):
            monkeypatch.setenv(name, str(folder))
        answer = CliRunner().invoke(app, words)
        assert answer.exit_code == 0, answer.exception or answer.output
        return
    path, given = parsed(words)
    if given.get("for_") is not None:
        propose(load_run(given["for_"]))
    elif path in (("plan",), ("up",)):
        (load_cluster if path == ("plan",) else load_any_cluster)(given["file"])
    elif path == ("run",):
        run = load_run(folder / "run.yaml" if str(given["file"]) == "FILE" else given["file"])
        for cluster in _made(command):
            assert (given["cluster"], node_range(run)[0] <= cluster.nodes) == (cluster.name, True)
    elif path == ("lab", "fault", "set"):
        parse(given["name"], tuple(PLACEHOLDERS.get(each, each) for each in given["arguments"]))
    if given.get("cluster") not in (None, "NAME"):
        assert given["cluster"] in _names(command, folder)


def _made(command: Command) -> Iterator[Cluster]:
    """Yield the cluster that the command's own block brings up last before the command."""
    last = None
    for each in commands(command.block):
        if each.line < command.line and (match := re.match(r"gpuctl .*\bup (\S+)", each.text)):
            last = load_cluster(Path(match[1]))
    if last:
        yield last


def _names(command: Command, folder: Path) -> set[str]:
    """Return the clusters that a command may name: its block's, or else the page's and stacks'."""
    if made := {cluster.name for cluster in _made(command)}:
        return made
    files = [*folder.glob("*.yaml"), *(HOME / "stacks").glob("*.yaml")]
    kinds = ("instance_type:", "hosts:")
    return {load_any_cluster(f).name for f in files if any(k in f.read_text() for k in kinds)}


@_of("make")
def test_make(command: Command) -> None:
    words = shlex.split(command.text)
    subprocess.run([*words, "-n"], cwd=HOME, check=True, capture_output=True)


@_of("aws")
def test_aws(command: Command) -> None:
    """Asks botocore's models, which AWS's own command line is made from."""
    _, service, operation, *rest = shlex.split(command.text)
    # `s3` of the command line has commands that no operation of the API has: `s3api` has those.
    model = botocore.session.get_session().get_service_model(service.replace("s3api", "s3"))
    known = {xform_name(name, "-"): name for name in model.operation_names}
    shape = model.operation_model(known[operation]).input_shape
    assert shape
    options = {f"--{xform_name(name, '-')}" for name in shape.members}
    assert {word for word in rest if word.startswith("--")} <= options | {"--region", "--query"}


@_of("echo")
def test_echo(command: Command) -> None:
    text, arrow, path = shlex.split(command.text)[1:]
    assert json.loads(text)
    assert (arrow, Path(path).suffix) == (">", ".json")


@_of(r"(\.venv/bin/)?python|scripts/\S+|\.venv/bin/pytest")
def test_what_is_named_exists(command: Command) -> None:
    program, *words = shlex.split(command.text)
    if program.startswith("scripts/"):
        assert os.access(HOME / program, os.X_OK)
    if program.endswith("python") and words[0] == "-m":
        assert find_spec(words[1])
    for word in words:
        path, _, test = word.partition("::")
        if path.startswith("tests/"):
            assert (HOME / path).exists()
            assert f"def {test}" in (HOME / path).read_text() if test else True


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_prose_exist(page: str) -> None:
    found = [
        f"{page}:{line}: `{text}`: {complaint}"
        for line, text in spans(page)
        if text.startswith("gpuctl ")
        for complaint in complaints(spelled_out(text).split()[1:])
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES)
def test_targets_of_make_in_prose_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (HOME / "Makefile").read_text(), re.MULTILINE))
    # A target may have variables after it. Other words are a message, such as `make room on …`.
    made = re.compile(r"make ([a-z-]+)( [A-Z_]+=\S+)*")
    named = {match[1] for _, text in spans(page) if (match := made.fullmatch(text))}
    assert named <= targets


@pytest.mark.parametrize(
    "block",
    [
        block
        for page in PAGES
        for block in blocks(page)
        if block.language == "yaml" and page not in OTHERS_FILES
    ],
    ids=lambda block: block.name,
)
def test_yaml_is_valid_as_it_is_or_as_part_of_a_file(block: Block, tmp_path: Path) -> None:
    if block.text.startswith("# yaml-language-server"):
        return  # a comment for editors
    found = []
    for above in _ABOVE:
        (tmp_path / "file.yaml").write_text(f"{above}{block.text}\n")
        found.append([str(each) for each in check(tmp_path / "file.yaml")])
    assert [] in found, found
