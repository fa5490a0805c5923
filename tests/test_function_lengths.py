"""`scripts/lint-functions` counts a function's lines from `def` to its last line."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts/lint-functions"


@pytest.fixture
def script() -> ModuleType:
    loader = SourceFileLoader("lint_functions", str(SCRIPT))
    spec = spec_from_file_location("lint_functions", loader=loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_parameters_count_and_docstrings_do_not(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    parameters = "".join(f"    p{number}: int,\n" for number in range(48))
    docstring = '    """A docstring.\n\n    It has three lines.\n    """\n'
    path.write_text(f"def fits(\n{parameters}) -> None:\n{docstring}")
    assert list(script.long_functions(path)) == []
    path.write_text(
        f"class A:\n  async def one_more(\n{parameters}) -> None:\n{docstring}    ...\n"
    )
    assert list(script.long_functions(path)) == [("one_more", 51)]


def test_a_long_function_is_reported(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli/run.py").write_text("def run():\n" + "    ...\n" * 50)
    monkeypatch.setattr(script, "HOME", tmp_path)
    monkeypatch.setattr(script, "FILES", ())
    assert script.main() == 1
    assert capsys.readouterr().out == (
        "cli/run.py:run has 51 lines; at most 50: move a part into a function\n"
    )
