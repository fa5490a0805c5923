"""`gpuctl run --env NAME=VALUE --nodes N`: values of the command line in place of the file's."""

from pathlib import Path

import pytest

from config.errors import InvalidFiles
from config.loading.load import check, load_run
from config.loading.overrides import Overrides
from config.run.run_file import Run

FILE = """\
type: task
name: train
nodes: 2
env:
  LR: 0.1
  KEEP: as it is
commands: [python train.py]
"""
ROLES = """\
type: ray
name: train
env: {LR: 0.1}
roles:
  head:
    env: [LR=0.2, HEAD=yes]
  worker: {nodes: 3}
commands: [python train.py]
"""


def run_of(tmp_path: Path, text: str, *env: str, nodes: str | None = None) -> Run:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    return load_run(file, Overrides(env, nodes))


def test_values_of_the_command_line_win(tmp_path: Path) -> None:
    run = run_of(tmp_path, FILE, "LR=1e-3", "NEW=a=b c", nodes="4")
    assert (run.nodes, run.env) == (4, {"LR": "1e-3", "KEEP": "as it is", "NEW": "a=b c"})


def test_of_one_name_the_last_wins(tmp_path: Path) -> None:
    assert run_of(tmp_path, FILE, "LR=1", "LR=2", "LR=").env["LR"] == ""


def test_a_list_of_the_file_is_overridden_too(tmp_path: Path) -> None:
    text = FILE.replace("  LR: 0.1\n  KEEP: as it is\n", "  - LR=0.1\n  - KEEP=yes\n")
    assert run_of(tmp_path, text, "LR=7").env == {"LR": "7", "KEEP": "yes"}


def test_a_role_that_sets_the_variable_gets_the_new_value(tmp_path: Path) -> None:
    run = run_of(tmp_path, ROLES, "LR=9", "ALL=1")
    assert run.env == {"LR": "9", "ALL": "1"}
    assert run.roles["head"].env == {"LR": "9", "HEAD": "yes"}
    assert run.roles["worker"].env == {}


@pytest.mark.parametrize(
    ("env", "nodes", "complaints"),
    [
        (
            ("A=1", "B C=2"),
            None,
            [
                "--env:2:1: E207 the key 'B C' names no variable; "
                "use letters, digits and _, with no digit first"
            ],
        ),
        (
            ("A=1", "B-"),
            None,
            [
                "--env:2:1: E207 env[1]: 'B-' names no variable; "
                "use letters, digits and _, with no digit first"
            ],
        ),
        ((), "0", ["--nodes:1:1: E202 'nodes' is 0, below 1; use 1 to 512"]),
        (
            (),
            "two",
            [
                "--nodes:1:1: E103 'nodes' is the text 'two', must be a whole number; "
                "write digits only, such as 2"
            ],
        ),
    ],
)
def test_complaints_name_the_option(
    tmp_path: Path, env: tuple[str, ...], nodes: str | None, complaints: list[str]
) -> None:
    with pytest.raises(InvalidFiles) as refused:
        run_of(tmp_path, FILE, *env, nodes=nodes)
    assert [str(one) for one in refused.value.diagnostics] == complaints


def test_complaints_about_the_file_stay_where_they_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidFiles) as refused:
        run_of(tmp_path, FILE.replace("name: train", "nam: train"), "A=1", nodes="3")
    places = {(Path(one.file).name, one.line, one.code) for one in refused.value.diagnostics}
    assert ("run.yaml", 2, "E101") in places
    assert not {file for file, _, _ in places} - {"run.yaml"}


def test_what_the_command_line_mends_is_no_complaint(tmp_path: Path) -> None:
    text = FILE.replace("nodes: 2", "nodes: 0")
    assert run_of(tmp_path, text, nodes="1").nodes == 1
    file = tmp_path / "run.yaml"
    assert [one.code for one in check(file)] == ["E202"]
    assert check(file, Overrides(nodes="1")) == ()


def test_nothing_given_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(FILE)
    assert load_run(file, Overrides()) == load_run(file)
