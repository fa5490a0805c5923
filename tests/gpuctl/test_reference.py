"""The page about Python says what the code does, and its examples are right."""

import inspect
import os
import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import gpuctl
from config.models import Value
from gpuctl import Cluster, Lab, Run, values
from gpuctl.reference import page
from tests.docs.pages import HOME, blocks

pytestmark = pytest.mark.slow


def test_the_types_of_what_is_returned_can_be_imported() -> None:
    functions = [getattr(gpuctl, name) for name in dir(gpuctl)]
    functions += [each for owner in (Cluster, Lab, Run) for each in vars(owner).values()]
    missing = set()
    for function in filter(inspect.isfunction, functions):
        stack = [get_type_hints(inspect.unwrap(function)).get("return")]
        while stack:
            kind = stack.pop()
            stack += get_args(kind)
            is_value = is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, Value))
            if is_value and getattr(kind, "__name__", "") not in values.__all__:
                missing.add(kind)
    assert missing == set()


@pytest.mark.thorough
def test_examples_have_the_types_of_the_api(tmp_path: Path) -> None:
    """Each example is a program that mypy reads as it would read a user's."""
    end = page().path.read_text().partition(page().marker)[0].count("\n")
    examples = [block for block in blocks("docs/look-up/python.md") if block.language == "python"]
    files = []
    for block in examples:
        if block.line < end:
            files.append(tmp_path / f"line_{block.line}.py")
            files[-1].write_text(block.text + "\n")
    assert len(files) > 8
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", f"{cache}/gpuctl/mypy", *map(str, files)],
        cwd=HOME,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"Success: no issues found in {len(files)} source files\n", done.stderr
