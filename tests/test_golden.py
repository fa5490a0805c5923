"""Golden files are compared, and renewed in one way."""

import re
from pathlib import Path

import pytest

from tests import golden
from tests.golden import RENEW, ROOT, check

HERE = Path(__file__).parent


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(RENEW, raising=False)
    path = tmp_path / "plan.txt"
    path.write_text("head\nport 1\nend\n")
    return path


def test_what_differs_is_shown_and_stays(file: Path) -> None:
    check(file, "head\nport 1\nend\n")
    with pytest.raises(AssertionError) as caught:
        check(file, "head\nport 2\nend\n")
    assert str(caught.value) == (
        "plan.txt is not what the code makes; if it is meant: make golden\n"
        "--- plan.txt\n+++ what the code makes\n@@ -1,3 +1,3 @@\n head\n-port 1\n+port 2\n end"
    )
    assert file.read_text() == "head\nport 1\nend\n"


def test_a_file_that_is_missing_is_none(file: Path) -> None:
    with pytest.raises(AssertionError, match=r"^other\.txt is not what the code makes"):
        check(file.with_name("other.txt"), "text\n")
    assert not file.with_name("other.txt").exists()


def test_every_golden_file_is_renewed_in_this_way() -> None:
    """All tests that compare with a golden file are those that `make golden` runs."""
    names = set()
    for path in HERE.rglob("test_*.py"):
        test = ""
        for line in path.read_text().splitlines() if path != Path(__file__) else ():
            test = found[1] if (found := re.match(r"def (test_\w+)", line)) else test
            if "golden.check(" in line:
                names.add(f"{path.relative_to(ROOT)}::{test}")
    assert names == set(golden.TESTS)
