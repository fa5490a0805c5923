"""`extends`: what a run file lays over a template, and where a mistake in either is pointed at."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidFiles
from config.loading.load import check, load_run
from config.loading.templates import templates
from config.run.env import Secret
from config.run.run_file import Mpi, Task
from config.yaml.marked_yaml import Document, merge_documents, read_yaml

STACKS = Path(__file__).parents[2] / "stacks"


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's own templates."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "gpuctl" / "templates"
    folder.mkdir(parents=True)
    return folder


def extending(folder: Path, text: str) -> Path:
    file = folder.parents[1] / "run.yaml"
    file.write_text(text)
    return file


def complaints(file: Path, users: Path) -> list[str]:
    """Each line of `check`, with the folder of templates as ~."""
    return [str(one).replace(f"{users}/", "~/").replace(f"{file}:", "") for one in check(file)]


MPI = """\
# Two nodes. With a summary.
type: mpi
name: base
nodes: 2
env: {A: 1, B: two}
roles:
  launcher: {env: {C: 3}}
  worker: {}
placement: {by: node, bind: core}
commands: [one, two]
"""


def test_names_of_secrets_in_a_list_are_laid_over_a_mapping(users: Path) -> None:
    (users / "base.yaml").write_text(MPI)
    run = load_run(extending(users, "extends: base\ntype: mpi\nname: mine\nenv: [TOKEN, A=9]\n"))
    assert run.env == {"A": "9", "B": "two", "TOKEN": Secret(secret="TOKEN")}


def test_mappings_merge_and_all_else_replaces(users: Path) -> None:
    (users / "base.yaml").write_text(MPI)
    run = load_run(
        extending(
            users,
            "extends: base\nname: mine\nenv: {B: 010, D: {secret: TOKEN}}\n"
            "roles: {launcher: {env: {E: 5}}}\nplacement: {by: slot}\ncommands: [three]\n",
        )
    )
    assert isinstance(run, Mpi)
    assert (run.extends, run.name, run.nodes, run.commands) == ("base", "mine", 2, ("three",))
    assert run.env == {"A": "1", "B": "010", "D": Secret(secret="TOKEN")}
    assert run.roles["launcher"].env == {"C": "3", "E": "5"}
    assert run.placement.model_dump() == {"by": "slot", "bind": "core"}


def test_the_list_form_of_env_merges_too(users: Path) -> None:
    (users / "base.yaml").write_text(MPI)
    run = load_run(extending(users, "extends: base\nenv:\n  - B=x=y\n  - D=\n"))
    assert run.env == {"A": "1", "B": "x=y", "D": ""}


def test_null_takes_away_what_the_template_has(users: Path) -> None:
    (users / "base.yaml").write_text(MPI + "image: reg/x\n")
    text = "extends: base\nimage: ~\nnodes: null\nroles: ~\nenv: {A: ~}\nplacement: {by:}\n"
    run = load_run(extending(users, text))
    assert isinstance(run, Mpi)
    assert (run.image, run.nodes, run.roles, run.env) == (None, 1, {}, {"B": "two"})
    assert run.placement.model_dump() == {"by": "slot", "bind": "core"}


def test_null_is_no_value_where_there_is_nothing_to_take_away(users: Path) -> None:
    (users / "base.yaml").write_text(MPI)
    assert complaints(extending(users, "extends: base\nenv: {C: ~}\nprocs_per_node:\n"), users) == [
        "2:10: E103 'env.C' is empty, must be text; write a text, or '' for an empty one"
    ]


def test_a_chain_and_one_of_gpuctls_own_at_its_end(users: Path) -> None:
    (users / "mine.yaml").write_text("extends: hello\nenv: {GREETING: hi, MORE: 1}\n")
    run = load_run(extending(users, "extends: mine\nenv: {MORE: 2}\n"))
    assert isinstance(run, Task)
    assert run.name == "hello"
    assert run.env == {"GREETING": "hi", "MORE": "2"}


def test_a_mistake_is_shown_where_it_stands(users: Path) -> None:
    (users / "base.yaml").write_text(MPI.replace("nodes: 2", "nodes: two") + "colour: red\n")
    file = extending(users, "extends: base\nenv: {A: true}\nprocs_per_node: 0\n")
    assert complaints(file, users) == [
        "~/base.yaml:4:8: E103 'nodes' is the text 'two', must be a whole number; write digits"
        " only, such as 2",
        "~/base.yaml:11:1: E101 unknown key 'colour'; allowed here: extends, type, name, nodes,"
        " roles, image, registry_auth, privileged, volumes, env, ports, requires, workdir, repo,"
        " files, code_limit, outputs, network, verify, order, max_duration, startup_timeout"
        " and 13 more",
        "2:10: E103 'env.A' is the boolean true, must be text; quote it: 'true'",
        "3:17: E202 'procs_per_node' is 0, below 1; use 1 to 1024",
    ]


def test_what_is_missing_in_both_is_missing_in_the_run_file(users: Path) -> None:
    (users / "base.yaml").write_text("type: mpi\n")
    assert complaints(extending(users, "extends: base\nname: x\n"), users) == [
        "1:1: E102 'commands' is missing; add it: Shell commands that every rank runs, in order,"
        " in one bash"
    ]


def test_rules_see_the_merged_values(users: Path) -> None:
    (users / "base.yaml").write_text(MPI.replace("  worker: {}\n", ""))
    assert complaints(extending(users, "extends: base\n"), users) == [
        "~/base.yaml:6:1: E220 'launcher_as_node' is true and 'nodes' is 2, so 'roles' needs"
        " launcher and worker: worker is missing; add worker: {} to it, or write"
        " launcher_as_node: false"
    ]
    assert complaints(extending(users, "extends: base\nroles: {worker: {}}\n"), users) == []
    assert complaints(extending(users, "extends: base\nnodes: 1\n"), users) == []


def test_the_type_may_be_repeated_and_not_changed(users: Path) -> None:
    assert complaints(extending(users, "extends: hello\ntype: task\n"), users) == []
    assert complaints(extending(users, "extends: hello\ntype: mpi\n"), users) == [
        "2:7: E218 'type' is mpi, but template 'hello' is of type task; remove it, or extend"
        " another"
    ]


def test_ones_own_template_is_taken_before_gpuctls_and_that_is_told(users: Path) -> None:
    (users / "hello.yaml").write_text("type: task\nname: mine\ncommands: [x]\n")
    file = extending(users, "extends: hello\n")
    assert load_run(file).name == "mine"
    assert complaints(file, users) == [
        "1:10: W203 template 'hello' is your own (~/hello.yaml), not gpuctl's of that name; give"
        " yours another name if that is not meant"
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("helo", "1:10: E216 there is no template 'helo'; did you mean 'hello'?"),
        ("demo", f"1:10: E216 template 'demo' is no run file; check {STACKS / 'demo.yaml'}"),
        (
            "self",
            "~/self.yaml:1:10: E217 'self' extends itself: self > self; let one of them extend"
            " nothing",
        ),
        ("broken", "1:10: E216 template 'broken' is no run file; check ~/broken.yaml"),
    ],
)
def test_a_template_that_cannot_be_extended(users: Path, name: str, said: str) -> None:
    (users / "self.yaml").write_text("extends: self\n")
    (users / "broken.yaml").write_text("nodes: [1\n")
    told = complaints(extending(users, f"extends: {name}\nnodes: none\n"), users)
    assert [line for line in told if "E001" not in line] == [said]


def test_the_run_file_itself_closes_a_circle_too(users: Path) -> None:
    (users / "a.yaml").write_text("extends: b\n")
    (users / "b.yaml").write_text("extends: a\n")
    assert complaints(users / "a.yaml", users) == [
        "~/b.yaml:1:10: E217 'a' extends itself: b > a; let one of them extend nothing"
    ]


def test_a_chain_has_an_end(users: Path) -> None:
    for number in range(20):
        (users / f"t{number}.yaml").write_text(f"extends: t{number + 1}\n")
    told = complaints(extending(users, "extends: t0\n"), users)
    assert told == [
        "~/t6.yaml:1:10: E217 more than 8 files extend each other; write some of them into one"
    ]


@pytest.mark.parametrize("name", ["../hello", "a/b", "/etc/passwd", ".hidden"])
def test_a_name_is_no_path(users: Path, name: str) -> None:
    with pytest.raises(InvalidFiles, match=r"1:10: E203 'extends' is .*; write the name of a temp"):
        load_run(extending(users, f"extends: {name}\ntype: task\nname: x\ncommands: [x]\n"))


def test_the_list_has_run_files_alone(users: Path) -> None:
    (users / "base.yaml").write_text(MPI)
    (users / "later.yaml").write_text("extends: base\nname: x\n")
    (users / "cluster.yaml").write_text("name: c\nnodes: 1\ninstance_type: p5.48xlarge\n")
    (users / "broken.yaml").write_text("nodes: [1\n")
    (users / "folder.yaml").mkdir()
    (users / "nowhere.yaml").symlink_to("gone")
    found = {template.name: template for template in templates()}
    assert {"hello", "base", "later"} <= set(found)
    assert not {"demo", "cluster", "broken", "folder", "nowhere"} & set(found)
    assert (found["base"].type, found["base"].summary) == ("mpi", "Two nodes.")
    assert (found["later"].type, found["later"].is_users) == ("mpi", True)
    assert (found["hello"].type, found["hello"].is_users) == ("task", False)


# Plain text that YAML cannot take for anything else, and keys that are no `env`.
WORDS = st.text("abcxyz", min_size=1, max_size=3)
DATA = st.recursive(
    st.one_of(WORDS, st.integers(0, 99), st.none(), st.booleans(), st.lists(WORDS, max_size=3)),
    lambda inner: st.dictionaries(WORDS, inner, max_size=4),
)
FILES = st.dictionaries(WORDS, DATA, min_size=1, max_size=4)


def document(data: Any, file: str) -> Document:
    found, diagnostics = read_yaml(yaml.safe_dump(data), file)
    assert found is not None
    assert diagnostics == []
    return found


def merged(over: Any, base: Any) -> Any:
    """The rule in its plainest form."""
    if not (isinstance(over, dict) and isinstance(base, dict)):
        return over
    both = {key: merged(over[key], base[key]) for key in over.keys() & base.keys()}
    gone = {key for key in both if over[key] is None}
    return {key: value for key, value in {**base, **over, **both}.items() if key not in gone}


def as_read(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: as_read(value) for key, value in data.items()}
    return tuple(data) if isinstance(data, list) else data


def leaves(data: Any, at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(data, dict):
        return {at: data}
    return {
        path: leaf
        for key, inner in data.items()
        for path, leaf in leaves(inner, (*at, key)).items()
    }


@given(FILES, FILES)
def test_merging_is_by_key_and_every_value_knows_its_file(over: Any, base: Any) -> None:
    result = merge_documents(document(over, "over"), document(base, "base"))
    assert result.data == as_read(merged(over, base))
    above = leaves(over)
    for path in leaves(result.data):
        assert result.position(path, on_key=False)[0] == ("over" if path in above else "base")


@given(FILES)
def test_laying_over_itself_takes_away_nulls_alone(data: Any) -> None:
    both = document(data, "f")
    assert merge_documents(both, both).data == as_read(merged(data, data))
    assert None not in leaves(merge_documents(both, both).data).values()


ENV = st.dictionaries(st.text("ABC", min_size=1, max_size=2), st.text("xyz= ", max_size=4))
FORMS = st.sampled_from([dict, lambda env: [f"{name}={text}" for name, text in env.items()]])


@given(ENV, ENV, FORMS, FORMS)
def test_env_merges_in_either_form(over: Any, base: Any, form: Any, other: Any) -> None:
    result = merge_documents(
        document({"env": form(over)}, "o"), document({"env": other(base)}, "b")
    )
    assert result.data["env"] == {**base, **over}
