"""Files become models: defaults, both forms of env, numbers as written, what is refused whole."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config.cluster.cluster_file import Cluster
from config.diagnostic import Diagnostic
from config.errors import InputError, InvalidFiles
from config.loading.kinds import kind_of
from config.loading.load import check, load_cluster, load_run
from config.loading.messages import TRANSLATED
from config.run.env import Secret
from config.run.run_file import RUN_TYPES, NcclTests, Task
from config.yaml.marked_yaml import Document, read_file, read_yaml
from tests.config.test_complaints import CLUSTER, RUN


def written(folder: Path, text: str) -> Path:
    file = folder / "file.yaml"
    file.write_text(text)
    return file


def test_three_keys_make_a_cluster(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, CLUSTER))
    assert cluster == Cluster(name="demo", nodes=2, instance_type="p4d.24xlarge")
    assert cluster.placement.strategy == "cluster"
    assert cluster.network.cidr == "10.213.0.0/16"
    assert cluster.lifetime is None


def test_env_is_a_list_or_a_mapping(tmp_path: Path) -> None:
    as_list = load_run(written(tmp_path, RUN + "env:\n  - A=1\n  - B=x=y\n  - C=\n"))
    as_mapping = load_run(written(tmp_path, RUN + "env: {A: '1', B: x=y, C: ''}\n"))
    assert as_list.env == as_mapping.env == {"A": "1", "B": "x=y", "C": ""}


@pytest.mark.parametrize(
    "number", ["24", "1.10", "010", "1e-5", "0x1F", "1_000", "-3", "+5", "2026-11-20", "12:30:00"]
)
def test_a_number_in_env_is_the_text_that_was_written(tmp_path: Path, number: str) -> None:
    assert load_run(written(tmp_path, RUN + f"env:\n  A: {number}\n")).env == {"A": number}


def test_numbers_in_the_env_of_a_role_are_as_written_too(tmp_path: Path) -> None:
    text = RUN + "nodes: 2\nroles: {worker: {env: {A: 1.10, B: 010, C: {secret: D}}}}\n"
    run = load_run(written(tmp_path, text))
    assert run.roles["worker"].env == {"A": "1.10", "B": "010", "C": Secret(secret="D")}


@pytest.mark.parametrize(
    ("roles", "nodes"),
    [
        ("{ps: {nodes: 2}, worker: {nodes: 3}}", 5),
        ("{worker: {nodes: 3}}", 4),
        ("{ps: {nodes: 1}, worker: {}}\nnodes: 4", 4),
    ],
)
def test_nodes_left_out_is_the_sum_of_the_roles(tmp_path: Path, roles: str, nodes: int) -> None:
    text = f"type: ps-worker\nname: x\ncommands: [x]\nroles: {roles}\n"
    assert load_run(written(tmp_path, text)).nodes == nodes


@pytest.mark.parametrize("name", RUN_TYPES)
def test_each_type_has_its_model(tmp_path: Path, name: str) -> None:
    commands = "" if name == "nccl-tests" else "commands: [hostname]\n"
    run = load_run(written(tmp_path, f"type: {name}\nname: x\nnodes: 2\n{commands}"))
    assert type(run) is RUN_TYPES[name]


def test_plain_numbers_of_bytes_need_no_quotes(tmp_path: Path) -> None:
    run = load_run(written(tmp_path, "type: nccl-tests\nname: x\nmin_bytes: 64\nmax_bytes: 1M\n"))
    assert isinstance(run, NcclTests)
    assert (run.min_bytes, run.max_bytes) == ("64", "1M")


@pytest.mark.parametrize("word", ["true", "no", "on", "null", "~"])
def test_a_word_in_env_must_be_quoted(tmp_path: Path, word: str) -> None:
    with pytest.raises(InvalidFiles, match=r":5:6: E10[34] 'env\.A' is "):
        load_run(written(tmp_path, RUN + f"env:\n  A: {word}\n"))
    assert load_run(written(tmp_path, RUN + f"env:\n  A: '{word}'\n")).env == {"A": word}


@pytest.mark.parametrize("number", ["010", "1e3", "0x10", "1_0", "2.0", "2:30", "9" * 30])
def test_no_spelling_of_a_number_changes_it_silently(tmp_path: Path, number: str) -> None:
    with pytest.raises(InvalidFiles):
        load_cluster(written(tmp_path, CLUSTER.replace("nodes: 2", f"nodes: {number}")))


def test_durations_are_seconds(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, CLUSTER + "lifetime: {max: 8h}\n"))
    assert cluster.lifetime is not None
    assert cluster.lifetime.max == 28800
    assert Cluster.model_validate_json(cluster.model_dump_json()) == cluster


def test_a_stored_run_is_read_back(tmp_path: Path) -> None:
    text = RUN + "env: {A: 1, B: {secret: C}}\nmax_duration: 90m\nready: {port: 22}\n"
    run = load_run(written(tmp_path, text))
    assert Task.model_validate_json(run.model_dump_json()) == run


def test_a_warning_is_told_and_does_not_stop_the_cluster(tmp_path: Path) -> None:
    file = written(tmp_path, CLUSTER + "network: {ssh_from: 0.0.0.0/0}\n")
    assert load_cluster(file).network.ssh_from == "0.0.0.0/0"
    assert [d.severity for d in check(file)] == ["warning"]


def test_the_exception_has_errors_alone_and_every_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidFiles) as caught:
        load_run(written(tmp_path, RUN + "image: x\nnodes: 0\non_stop: burn\n"))
    assert [d.code for d in caught.value.diagnostics] == ["E202", "E201"]
    assert caught.value.exit_code == 2
    assert str(caught.value).count("\n") == 1


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError) as caught:
        load_cluster(Path("/nowhere/c.yaml"))
    assert str(caught.value) == (
        "/nowhere/c.yaml cannot be read: No such file or directory; check the path"
    )


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"instance_type": "x"}, "cluster"),
        ({"type": "task", "commands": ()}, "run"),
        ({"comands": ()}, "run"),
        ({"extends": "hello"}, "run"),
        ({"instance_type": "x", "node": 2}, "cluster"),  # `node` is also near to `nnodes`
        ({"name": "x", "nodes": 1}, None),
        ([], None),
    ],
)
def test_the_kind_is_seen_from_the_keys(data: object, kind: str | None) -> None:
    assert kind_of(data) == kind


ERRORS_OF_SCHEMAS = {
    "str": {"string_type", "string_unicode"},
    "float": {"float_type"},
    "int": {"int_type"},
    "bool": {"bool_type"},
    "tuple": {"tuple_type"},
    "dict": {"dict_type"},
    "model": {"model_type"},
    "model-fields": {"missing", "extra_forbidden"},
    "literal": {"literal_error"},
    "function-before": {"gpuctl"},
    "function-after": {"gpuctl"},
    "tagged-union": set(),  # by a function that always finds one of the tags
    "nullable": set(),
    "default": set(),
    "definitions": set(),
    "definition-ref": set(),
    "model-field": set(),
}
ERRORS_OF_CONSTRAINTS = {
    ("str", "pattern"): "string_pattern_mismatch",
    ("str", "min_length"): "string_too_short",
    ("str", "max_length"): "string_too_long",
    ("float", "ge"): "greater_than_equal",
    ("float", "le"): "less_than_equal",
    ("int", "ge"): "greater_than_equal",
    ("int", "le"): "less_than_equal",
    ("tuple", "min_length"): "too_short",
    ("tuple", "max_length"): "too_long",
    ("dict", "max_length"): "too_long",
}
NOT_CONSTRAINTS = {
    *("type", "strict", "metadata", "serialization", "schema", "schemas", "ref", "schema_ref"),
    *("items_schema", "variadic_item_index", "keys_schema", "values_schema", "fields", "function"),
    *("choices", "discriminator"),
    *("expected", "default", "cls", "config", "model_name", "computed_fields", "custom_init"),
    *("root_model", "definitions", "extras_schema", "extra_behavior"),
}


def errors_that_can_be_raised(schema: object) -> set[str]:
    found: set[str] = set()
    if isinstance(schema, dict):
        kind = schema.get("type")
        if isinstance(kind, str) and ("schema" in schema or kind in ERRORS_OF_SCHEMAS):
            found |= ERRORS_OF_SCHEMAS[kind]
            for key in schema.keys() - NOT_CONSTRAINTS:
                found.add(ERRORS_OF_CONSTRAINTS[kind, key])
        for key, part in schema.items():
            if key not in ("metadata", "serialization"):
                found |= errors_that_can_be_raised(part)
    elif isinstance(schema, (list, tuple)):
        for part in schema:
            found |= errors_that_can_be_raised(part)
    return found


def test_every_error_that_the_models_can_raise_has_words_of_ours() -> None:
    raised = errors_that_can_be_raised(Cluster.__pydantic_core_schema__)
    for model in RUN_TYPES.values():
        raised |= errors_that_can_be_raised(model.__pydantic_core_schema__)
    assert raised == TRANSLATED


NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,5}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@given(env=st.dictionaries(NAMES, TEXTS, max_size=5))
def test_any_text_arrives_as_it_is_in_either_form(
    tmp_path_factory: pytest.TempPathFactory, env: dict[str, str]
) -> None:
    file = tmp_path_factory.getbasetemp() / "env.yaml"
    for form in (env, [f"{name}={text}" for name, text in env.items()]):
        quoted = yaml.safe_dump({"env": form}, default_style='"')
        file.write_text(RUN + quoted, encoding="utf-8")
        assert load_run(file).env == env


@given(
    number=st.from_regex(r"[-+]?[0-9][0-9_.eE+x]{0,6}", fullmatch=True),
    path=st.sampled_from(["env: {A: NUMBER}", "roles: {master: {env: {A: NUMBER}}}"]),
)
def test_what_looks_like_a_number_is_the_text_that_was_written(
    tmp_path_factory: pytest.TempPathFactory, number: str, path: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "number.yaml"
    file.write_text(RUN + path.replace("NUMBER", number) + "\n")
    run = load_run(file)
    assert (run.env or run.roles["master"].env) == {"A": number}


SCALARS = st.sampled_from(
    [
        *(
            "2",
            "0",
            "-1",
            "99999",
            "x",
            "no",
            "010",
            "true",
            "~",
            "''",
            "'\\0'",
            '"\\0"',
            '"\\ud800"',
        ),
        *RUN_TYPES,
        *("10.0.0.0/16", "8h", "[]", "{}", "[a]", "{a: 1}", "[[]]", "*a", "!x y", "- ", "|", "\t"),
    ]
)
RUN_KEYS = {key for model in RUN_TYPES.values() for key in model.model_fields}
KEYS = st.sampled_from(sorted({*Cluster.model_fields, *RUN_KEYS, "max", "port", "?", "<<"}))
LINES = st.builds("{}{}: {}".format, st.sampled_from(["", "  ", "- ", "\t"]), KEYS, SCALARS)
FILES = st.one_of(st.text(), st.lists(LINES, max_size=12).map("\n".join))


@given(FILES)
def test_any_text_gives_diagnostics_and_nothing_else(text: str) -> None:
    document, diagnostics = read_yaml(text, "f")
    assert document is not None or diagnostics
    assert all(d.line >= 1 and d.column >= 1 for d in diagnostics)


@given(content=st.one_of(FILES.map(lambda t: t.encode("utf-8", "replace")), st.binary()))
def test_any_file_is_a_model_or_says_why_not(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(content)
    errors = [d for d in check(file) if d.severity == "error"]
    for load in (load_cluster, load_run):
        try:
            load(file)
        except InvalidFiles as error:
            assert error.diagnostics
            assert all("\n" not in str(d) for d in error.diagnostics)
        else:
            assert not errors


def test_a_valid_file_is_read_once_and_its_warnings_come_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []

    def read(path: Path) -> tuple[Document | None, list[Diagnostic]]:
        reads.append(path)
        return read_file(path)

    monkeypatch.setattr("config.loading.load.read_job", read)
    file = written(tmp_path, f"{CLUSTER}network:\n  ssh_from: 0.0.0.0/0\n")
    warnings: list[str] = []
    load_cluster(file, warnings.append)
    assert reads == [file]
    assert warnings == [str(one) for one in check(file)]
    assert [text.split()[1] for text in warnings] == ["W202"]
