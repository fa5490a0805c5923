"""Broken files: whatever a file holds, gpuctl answers in lines that name a place of the file.

The texts are gpuctl's own stacks, manifests and files of other tools, in which one thing or several
are changed.
"""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from config.loading.load import check
from tests.formats.manifest_texts import (
    ALL_KEYS_OF_MPIJOB,
    ALL_KEYS_OF_TRAINJOB,
    ALL_KEYS_OF_VOLCANO,
)

pytestmark = pytest.mark.slow

STACKS = Path(__file__).parents[2] / "stacks"
LONGEST_LINE = 300
FOREIGN = (
    "services:\n  web:\n    image: nginx:1\n    ports: ['80:80']\n    command: [run, --now]\n",
    "on: push\njobs:\n  test:\n    runs-on: ubuntu-24.04\n    steps:\n      - run: make\n",
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n",
    "apiVersion: v1\nkind: List\nitems:\n  - apiVersion: v1\n    kind: Pod\n",
    "- hosts: all\n  tasks:\n    - name: one\n      command: true\n",
    "Resources:\n  A: !Ref B\n  C: {Fn::GetAtt: [A, Arn]}\n",
    "name: job\nresources: {accelerators: H100:8}\nnum_nodes: 2\nrun: |\n  torchrun train.py\n",
    "[package]\nname = 'x'\n",
    '{"name": "x", "nodes": 2, "instance_type": "p5.48xlarge", "lifetime": {"max": "1h"}}\n',
)
TEXTS = (
    *(path.read_text() for path in sorted(STACKS.glob("*.yaml"))),
    *(ALL_KEYS_OF_MPIJOB, ALL_KEYS_OF_TRAINJOB, ALL_KEYS_OF_VOLCANO),
    *FOREIGN,
)
VALUES = (
    *("", "~", "no", "+1", "010", ".nan", ".inf", "2026-01-01", "1:30", "1_000", "1" * 5000),
    *("[]", "{}", "[x, [y]]", "{a: {b: c}}", "*a", "&a [x]", "!!int x", "!x y", "'", '"', "|"),
    *("<<", "a b", "../../etc/passwd", "-v/:/x", '"\\0"', '"\\ud800"', "x" * 5000, "é" * 500),
    *("${NAME}", "$NAME", "<account>", "{{ x }}", "---", "...", "\t", "\x01", "\u2028", "%A"),
)


@st.composite
def broken_texts(draw: st.DrawFn) -> str:
    """Return one of the texts with one to three changes."""
    lines = draw(st.sampled_from(TEXTS)).splitlines()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        change = draw(st.sampled_from(("value", "key", "remove", "repeat", "indent", "cut", "add")))
        line = lines[at]
        before, colon, _ = line.partition(":")
        value = draw(st.sampled_from(VALUES))
        lines[at : at + 1] = {
            "value": [f"{before}{colon} {value}"],
            "key": [f"{line[: len(line) - len(line.lstrip())]}{value}: {line.strip()}"],
            "remove": [],
            "repeat": [line, line],
            "indent": [f"  {line}"],
            "cut": [line[: draw(st.integers(0, len(line)))]],
            "add": [line, value],
        }[change]
        lines = lines or [""]
    return "\n".join(lines) + draw(st.sampled_from(("\n", "", "\n---\n", "\n---\na: b\n")))


def answer(folder: Path, text: str) -> list[str]:
    """Return the lines about the file, for a file without a mistake none."""
    file = folder / "f.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return [str(one).replace(str(file), "f.yaml") for one in check(file)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broken")


@settings(max_examples=300)
@given(text=broken_texts())
@example(text="type: no\nname: a\ncommands: [x]\n")
@example(text="type: .nan\nname: a\ncommands: [x]\n")
@example(text="type: nccl-tests\nname: a\nfoo: 1\n")
def test_every_broken_file_is_answered_in_lines_with_a_place(folder: Path, text: str) -> None:
    most = text.count("\n") + 2
    for line in answer(folder, text):
        assert len(line) <= LONGEST_LINE, line
        file, row, column = line.split(" ")[0].removesuffix(":").split(":")
        assert file == "f.yaml"
        assert 1 <= int(row) <= most, line
        assert int(column) >= 1, line


@pytest.mark.parametrize("kind", ["no", "+1", ".nan", "2026-01-01", "010", "1:30"])
def test_a_type_that_readers_understand_differently_is_never_guessed(
    tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(f"type: {kind}\nname: a\ncommands: [x]\n")
    assert [str(one).removeprefix(f"{file}:") for one in check(file)] == [
        f"1:7: E201 'type' is '{kind}', which is not allowed; use task, mpi, nccl-tests, ddp,"
        " torchrun, horovod, deepspeed, ps-worker or ray"
    ]


MANY_KEYS = "type: task\nname: a\ncommands: [x]\n" + "".join(f"key{i}: 1\n" for i in range(8000))
# Before, each of these took minutes, or a time that grew with the square of the size.
LARGE = {
    "keys": (MANY_KEYS, "f.yaml:103:1: E101 unknown key 'key99'; allowed"),
    "env": (
        "type: task\nname: a\ncommands: [x]\nenv:\n" + "  a b: 1\n" * 9000,
        "E003 'a b' is given twice, on lines 5 and 9004; keep one of them",
    ),
    "variables": (
        "type: task\nname: a\ncommands: [x]\nenv:\n"
        + "".join(f"  A{i}: !x 1\n" for i in range(9900)),
        "f.yaml:9904:10: E007 the tag !x means nothing to gpuctl; remove the tag",
    ),
    "values": ("a:\n" + "- b: 1\n" * 140_000, "E008 the file is too large; write less than 20 000"),
    "manifest": (
        "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec:\n"
        + "".join(f"  a{i}: 1\n" for i in range(9900)),
        "f.yaml:103:3: E101 unknown key 'a99' in 'spec'; allowed here: cleanPodPolicy,",
    ),
    "one word": ("type: " + "x" * 1_000_000, "E201 'type' is 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
    "one key": ("type: task\nname: a\n? " + "x" * 1_000_000 + "\n: 1\n", "E101 unknown key 'xxxxx"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", LARGE)
def test_a_file_of_a_mebibyte_is_answered_soon(folder: Path, name: str) -> None:
    text, line = LARGE[name]
    lines = answer(folder, text)
    assert any(line in one for one in lines), lines[:3]


def test_of_many_mistakes_a_hundred_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(MANY_KEYS)
    found = [str(one).removeprefix(f"{file}:") for one in check(file)]
    assert len(found) == 101
    assert found[0] == "1:1: E108 7900 more mistakes are not listed; correct these first"
