"""How the core finds the formats of other tools."""

import subprocess
import sys
from pathlib import Path

import pytest

from config.loading.formats import format_of, formats
from config.yaml.marked_yaml import read_documents
from tests.formats.manifest_texts import MPIJOB, TRAINJOB, VOLCANO

HOME = Path(__file__).parents[2]
SEVENTH = '''
"""A format of a tool that nobody has heard of."""

from config.loading.formats import Format, Reading


FORMAT = Format(
    title="a wish of genie",
    recognise=lambda document: isinstance(document.data, dict) and "wish" in document.data,
    read=lambda document, given: Reading(None, []),
)
'''


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (MPIJOB, "a manifest of a run"),
        (TRAINJOB, "a manifest of a run"),
        (VOLCANO, "a manifest of a run"),
        ("type: task\nresources: {gpu: H100}\ncommands: [hostname]\n", "a task of dstack"),
        ("name: x\ntype: task\nnodes: 2\ncommands: [hostname]\n", None),
        ("- a list\n", None),
    ],
)
def test_at_most_one_format_recognises_a_document(
    text: str, title: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    ((document,), _) = read_documents(file)
    assert sum(form.recognise(document) for form in formats()) == (title is not None)
    found = format_of(document)
    assert (found.title if found else None) == title


def test_format_is_one_folder_that_touches_nothing_else(tmp_path: Path) -> None:
    """Such a folder in a copy of `formats/` is enough for `validate` to name its files."""
    for room in (
        "cli",
        "config",
        "lab",
        "nodes",
        "engine",
        "infra",
        "operations",
        "provision",
        "stacks",
    ):
        (tmp_path / room).symlink_to(HOME / room)
    (tmp_path / "formats").mkdir()
    for path in (HOME / "formats").iterdir():
        (tmp_path / "formats" / path.name).symlink_to(path)
    (tmp_path / "formats" / "genie").mkdir()
    (tmp_path / "formats" / "genie" / "__init__.py").touch()
    (tmp_path / "formats" / "genie" / "format.py").write_text(SEVENTH)
    (tmp_path / "wish.yaml").write_text("wish: sixteen H100\n")
    program = (
        "from pathlib import Path\n"
        "from config.loading.load import load_cluster\n"
        "try: load_cluster(Path('wish.yaml'))\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == ("wish.yaml:1:1: E107 this is a wish of genie; give it to `gpuctl run`\n")
