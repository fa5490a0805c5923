"""`scripts/uv` installs the uv that is pinned, and no other."""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "scripts"
WHEEL = "uv-0.13.8-py3-none-any.whl"


def make_wheel(folder: Path) -> Path:
    """A wheel that says it is uv, with one command."""
    folder.mkdir()
    with zipfile.ZipFile(folder / WHEEL, "w") as files:
        program = zipfile.ZipInfo("uv-0.13.8.data/scripts/uv")
        program.external_attr = 0o100755 << 16
        files.writestr(program, "#!/bin/sh\necho ours\n")
        info = "uv-0.13.8.dist-info"
        files.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 0.13.8\n")
        files.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        files.writestr(f"{info}/RECORD", "")
    return folder / WHEEL


def test_only_a_uv_of_the_pinned_sha256_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("ensurepip", reason="Debian's Python has it with python3-venv")
    wheel = make_wheel(tmp_path / "index")
    root = tmp_path / "root"
    shutil.copytree(SCRIPTS, root / "scripts")
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(Path(sys.base_prefix) / "bin" / "python3")

    def uv() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [root / "scripts" / "uv"],
            env={
                "PATH": f"{python.parent}:/usr/bin:/bin",
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(wheel.parent),
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )

    refused = uv()
    assert refused.returncode == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in refused.stderr
    assert not (root / ".uv/bin/uv").exists()

    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (root / "scripts/uv.txt").write_text(f"uv==0.13.8 --hash=sha256:{sha256}\n")
    assert uv().stdout == f"{root}/.uv/bin/uv\n"
    assert subprocess.check_output([root / ".uv/bin/uv"], text=True) == "ours\n"
