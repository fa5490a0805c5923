"""The registry of codes and the source have the same codes."""

import ast
import re
from pathlib import Path

import config
import formats
from config.loading.codes import CODES


def test_every_code_in_the_source_is_registered_and_every_registered_one_used() -> None:
    rooms = [Path(str(room.__file__)).parent for room in (config, formats)]
    sources = [path for room in rooms for path in room.rglob("*.py") if path.name != "codes.py"]
    used = {
        node.value
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"[EW]\d{3}", node.value)
    }
    assert used == set(CODES)
