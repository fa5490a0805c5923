"""What YAML's text becomes, the limits of a file, and where its values are found again."""

from pathlib import Path

import pytest

from config.errors import InputError
from config.mistakes import Mistake
from config.yaml.marked_yaml import Ambiguous, Document, read_file, read_yaml

SCALARS = [
    *((text, None) for text in ("", "~", "null", "NULL")),
    *(("true", True), ("TRUE", True), ("false", False), ("FALSE", False)),
    *(("0", 0), ("-12", -12), ("12.50", 12.5), ("-0.5", -0.5)),
    *((text, text) for text in ("x", "=", "<<", "p4d.24xlarge", "1.2.3")),
    *(("!!str 5", "5"), ("!!seq [x]", ("x",)), ("!!map {x: y}", {"x": "y"})),
]


def read(text: str) -> tuple[Document | None, list[str]]:
    document, diagnostics = read_yaml(text, "f")
    return document, [str(one) for one in diagnostics]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_what_all_readers_agree_on_has_its_type(text: str, value: object) -> None:
    document, diagnostics = read(f"a: {text}\n")
    assert document is not None
    found = document.data["a"]
    assert (found, type(found)) == (value, type(value))
    assert diagnostics == []


@pytest.mark.parametrize(
    "text",
    [
        *("no", "On", "010", "0x1F", "0o17", "1e3", "1_0", "2:30", ".5", "5.", "+5", ".inf"),
        *("2026-11-20", "1" * 19),
    ],
)
def test_what_readers_understand_differently_is_kept_as_written(text: str) -> None:
    document, diagnostics = read(f"a: {text}\n")
    assert document is not None
    assert document.data == {"a": text}
    assert type(document.data["a"]) is Ambiguous
    assert diagnostics == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "a: *x\n",
            "f:1:4: E001 not YAML: found undefined alias 'x'; check indentation, brackets and"
            " quotes here and on the line before",
        ),
        (
            "a: @x\n",
            "f:1:4: E001 not YAML: found character '@' that cannot start any token; check"
            " indentation, brackets and quotes here and on the line before",
        ),
        ("a: b\nc: d\x01\n", "f:2:5: E004 YAML forbids the character U+0001; remove it"),
        ("a: !!binary b\n", "f:1:4: E007 the tag !!binary means nothing to gpuctl; remove the tag"),
        ("!x a: b\n", "f:1:1: E007 the tag !x means nothing to gpuctl; remove the tag"),
        (
            "a: &" + "b" * 60 + " 1\nc: *" + "d" * 60,
            f"f:2:4: E001 not YAML: found undefined alias '{'d' * 56}…; check indentation,"
            " brackets and quotes here and on the line before",
        ),
        # Of two equal keys the first counts, and the second is not looked into.
        ("a: 1\na: !x 2\n", "f:2:1: E003 'a' is given twice, on lines 1 and 2; keep one of them"),
        ("[" * 5000, "f:1:1: E008 the file is nested too deeply; flatten it"),
        # Less deep: PyYAML has read it, and our own walk through it is too long.
        ("[" * 400 + "]" * 400, "f:1:1: E008 the file is nested too deeply; flatten it"),
    ],
)
def test_what_is_wrong_with_a_text(text: str, line: str) -> None:
    assert read(text)[1] == [line]


def test_twenty_thousand_values_with_aliases_written_out_are_the_most() -> None:
    # The file, 7 keys, and as often a list of 2855 values: 1 + 7 * (1 + 1 + 2855) values.
    first = f"a: &a [{', '.join(['x'] * 2855)}]\n"
    largest = first + "".join(f"a{number}: *a\n" for number in range(6))
    assert read(largest)[1] == []
    assert read(largest.replace("[x", "[x, x"))[1] == [
        "f:1:1: E008 the file is too large; write less than 20 000 values"
    ]


def test_of_many_tabs_fifty_are_told() -> None:
    text = "".join(f"a{number}:\n\tb: c\n" for number in range(60))
    tabs = [line for line in read(text)[1] if "E002" in line]
    assert len(tabs) == 50


def test_a_mebibyte_is_the_most(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("a: b\n#".ljust(1 << 20, "x"))
    assert read_file(file)[1] == []
    file.write_text("a: b\n#".ljust((1 << 20) + 1, "x"))
    with pytest.raises(InputError) as caught:
        read_file(file)
    assert str(caught.value) == f"{file} has more than 1 MiB; is it the right file?"


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_column_of_a_wrong_byte_counts_characters(tmp_path: Path, mark: bytes) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(mark + "a: 1\nb: éé".encode() + b"\xff\n")
    assert [str(one) for one in read_file(file)[1]] == [
        f"{file}:2:6: E004 the file is not UTF-8 text; save it as UTF-8"
    ]


@pytest.mark.parametrize(
    ("at", "on_key", "line"),
    [
        (("a", "b", 1), False, "1:12"),
        (("a", "b"), True, "1:5"),
        (("a", "b"), False, "1:8"),
        # Of a path that leads nowhere: the nearest value above it, or its key.
        (("a", "c"), False, "1:4"),
        (("a", "b", 2), False, "1:8"),
        (("a", "b", "c"), False, "1:8"),
        (("a", "b", 0, 0), False, "1:9"),
        (("x",), True, "1:1"),
    ],
)
def test_a_mistake_is_found_in_the_text(at: tuple[str | int, ...], on_key: bool, line: str) -> None:
    document, _ = read("a: {b: [c, d]}\n")
    assert document is not None
    assert str(document.locate(Mistake("E", "m", "h", at, on_key))) == f"f:{line}: E m; h"


def test_the_text_of_a_value_is_that_of_the_file() -> None:
    document, _ = read("a: {b: [c, '010']}\n")
    assert document is not None
    paths: list[tuple[str | int, ...]] = [("a", "b", 1), ("a", "b"), ("a", "x")]
    assert [document.text_at(path) for path in paths] == ["010", "", ""]
    assert document.node(("a", "b", 1)).value == "010"
