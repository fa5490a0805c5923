"""`gpuctl explain` and `gpuctl docs`, as text and as JSON."""

import json
from pathlib import Path

from typer.testing import CliRunner

from cli.main import app


def test_a_code_is_explained_in_lines() -> None:
    answer = CliRunner().invoke(app, ["explain", "E230"])
    assert answer.exit_code == 0
    assert (
        answer.stdout
        == """E230: diagnostic

  A total budget without a lifetime.

Example:
  budget: {max_total: 100}

What to do:
  Add `lifetime: {max: …}`.

Documentation: docs/look-up/diagnostics.md
"""
    )


def test_a_mapping_is_explained_with_its_keys() -> None:
    answer = CliRunner().invoke(app, ["explain", "cluster.lifetime"])
    assert answer.exit_code == 0
    assert "\nKeys:\n  max (duration, required)\n" in answer.stdout


def test_the_document_has_every_part() -> None:
    answer = CliRunner().invoke(app, ["explain", "run.env", "--json"])
    document = json.loads(answer.stdout)
    assert document["subject"] == "run file"
    assert document["field"]["kind"] == "mapping or list"


def test_docs_prints_a_page_that_exists() -> None:
    answer = CliRunner().invoke(app, ["docs"])
    assert Path(answer.stdout.strip()).is_file()
