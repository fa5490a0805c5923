"""`scripts/python` chooses the Python that `make` installs gpuctl with."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "python"
OF_DEBIAN, OF_UV = "/usr/bin/python3\n", "uv python find\n"


@pytest.mark.parametrize(("least", "chosen"), [("3.0", OF_DEBIAN), ("3.99", OF_UV)])
def test_debians_python_is_taken_if_it_is_new_enough(
    least: str, chosen: str, tmp_path: Path
) -> None:
    if not Path("/usr/bin/python3").exists():
        chosen = OF_UV
    scripts, uv = tmp_path / "scripts", tmp_path / "an-uv"
    scripts.mkdir()
    shutil.copy(SCRIPT, scripts)
    for path, text in ((scripts / "uv", f"echo {uv}"), (uv, 'echo "uv $*"')):
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    (tmp_path / "pyproject.toml").write_text(f'requires-python = ">={least}"\n')
    assert subprocess.check_output([scripts / "python"], text=True) == chosen
