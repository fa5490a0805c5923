"""Files whose tests are spread over workers share nothing that is dear to make."""

from pathlib import Path

import pytest

from tests.conftest import FIRST, SPREAD, TOGETHER, group

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("file", sorted(SPREAD))
def test_a_file_that_is_spread_has_no_fixture_of_its_module(file: str) -> None:
    text = (ROOT / file).read_text()
    assert 'scope="module"' not in text
    assert 'scope="package"' not in text


def test_what_is_named_exists_and_stays_together() -> None:
    for file in (FIRST, *TOGETHER):
        assert (ROOT / file).is_file()
    assert group("tests/e2e/test_rdma.py::test_a") == group("tests/e2e/test_rdma.py::test_b[1::2]")
    for scope in set(TOGETHER.values()):
        assert group(f"{min(_files(scope))}::test_a") == group(f"{max(_files(scope))}::test_b")
        rooms = {file.split("/")[1] for file in _files(scope)}
        assert len(rooms) == 1  # their fixture is a package's: of a room, or of one within it


def _files(scope: str) -> list[str]:
    return [file for file, its in TOGETHER.items() if its == scope]
