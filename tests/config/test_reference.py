"""The pages under docs/ say what the models and the registry of codes say."""

import ast
import re
from pathlib import Path

import pytest

import config
import formats
from config.file_reference import MARKER, pages, replace_reference
from config.loading.codes import CODES


@pytest.mark.parametrize("page", sorted(pages()), ids=lambda path: path.name)
def test_pages_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert text.count(MARKER) == 1
    assert text == replace_reference(text, pages()[page]), "run `python -m config.file_reference`"


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
