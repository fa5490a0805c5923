"""The soak of cold demos: what it prints, keeps and returns. A script stands for the demo."""

import re
from pathlib import Path

import pytest

from tests import soak

SECOND_FAILS = """\
#!/bin/bash
echo "demo in the lab $1"
mkdir -p "$EVIDENCE" "$XDG_STATE_HOME"
echo console > "$EVIDENCE/console"
[[ $XDG_STATE_HOME != */demo-2/* ]] || exit 125
"""


def test_a_demo_that_fails_is_named_and_its_evidence_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script, kept = tmp_path / "demo", tmp_path / "kept"
    script.write_text(SECOND_FAILS)
    script.chmod(0o755)
    words = ["--demos", "3", "--load", "1", "--kept", str(kept)]
    assert soak.main(words, script) == 1
    printed = re.sub(r"\d+ s, load \d+", "T s, load L", capfd.readouterr().out)
    assert printed == (
        "demo 1 of 3: T s, load L\n"
        f"demo 2 of 3: T s, load L: FAILED (exit code 125), evidence in {kept}/demo-2\n"
        "demo 3 of 3: T s, load L\n"
        "2 of 3\n"
    )
    assert [path.name for path in kept.iterdir()] == ["demo-2"]
    assert (kept / "demo-2" / "output.log").read_text() == "demo in the lab soak\n"
    assert (kept / "demo-2" / "evidence" / "console").read_text() == "console\n"


def test_demos_that_all_end_well_are_a_success(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "demo"
    script.write_text("#!/bin/bash\n")
    script.chmod(0o755)
    assert soak.main(["--demos", "2", "--load", "0", "--kept", str(tmp_path / "kept")], script) == 0
    assert capfd.readouterr().out.endswith("\n2 of 2\n")


def test_a_demo_that_hangs_is_ended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "demo"
    script.write_text("#!/bin/bash\ntrap 'exit 143' TERM\nsleep 600 & wait\n")
    script.chmod(0o755)
    words = ["--demos", "1", "--load", "0", "--kept", str(tmp_path / "kept")]
    assert soak.main(words, script, 1.0) == 1
    assert "FAILED (timed out)" in capfd.readouterr().out
