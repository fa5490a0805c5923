"""Commands that gpuctl shows: each value in one is quoted for a shell, by one helper.

The agent on nodes is not among them: its messages name only clusters and runs, whose names have
patterns (`config.identifiers`), and it has no part of `config` but a few small files.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import config

ROOT = Path(config.__file__).parents[1]
ROOMS = (
    *("cli", "config", "engine", "formats", "gpuctl", "infra", "lab", "nodes", "operations"),
    *("provision", "smoke"),
)
HELPER = ROOT / "config" / "command_text.py"
AGENT = ROOT / "engine" / "agent"

VALUE = "\0"
"""What is in place of a value of an f-string."""

_PROGRAMS = "gpuctl|aws|ssh|scp|rsync|code|cursor|journalctl|export|chmod|sudo|docker|podman"
_WITH_VALUE = re.compile(rf"`(?:(?:{_PROGRAMS}|--?[a-z]+) [^`]*{VALUE}|{VALUE} [a-z-]+ {VALUE})")


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each f-string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (
                part.value if isinstance(part, ast.Constant) else VALUE for part in node.values
            )
            yield node.lineno, "".join(map(str, parts))


def test_the_helper_quotes_each_value_of_a_command() -> None:
    found = []
    for file in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        if file == HELPER or AGENT in file.parents:
            continue
        for line, text in texts(ast.parse(file.read_text())):
            if _WITH_VALUE.search(text):
                found.append(f"{file.relative_to(ROOT)}:{line}: {text.replace(VALUE, '{…}')}")
    assert found == [], "use config.command_text"


def test_a_value_in_a_command_is_found() -> None:
    wrong = ('f"`gpuctl down {name}`"', 'f"a" f"`gpuctl ssh " f"{name} x`"', 'f"`{words} up {x}`"')
    right = ('f"`gpuctl up` {x}"', 'f"{x} `gpuctl up FILE` {x}"', 'f"`{key}` is {x}"')
    for text in (*wrong, *right):
        ((_, joined),) = texts(ast.parse(text))
        assert bool(_WITH_VALUE.search(joined)) is (text in wrong), text
