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


def test_a_known_function_that_is_short_is_reported(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "KNOWN", (*script.KNOWN[1:], "cli/run.py:run"))
    assert script.main() == 1
    assert capsys.readouterr().out == (
        "tests/e2e/test_main_job.py:test_the_seeds_job_on_two_nodes_from_up_to_destroyed has 51"
        " lines; at most 50: move a part into a function\n"
        "scripts/lint-functions: cli/run.py:run is short enough; remove it from KNOWN\n"
    )
