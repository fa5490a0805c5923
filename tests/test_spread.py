"""Files whose tests are spread over workers share nothing that is dear to make."""

from pathlib import Path

import pytest

from tests.conftest import FIRST, SPREAD, TOGETHER, from_own_place, group

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


def test_a_spread_file_goes_to_whoever_is_free() -> None:
    assert group("tests/e2e/test_faults.py::test_a") != group("tests/e2e/test_faults.py::test_b")


@pytest.mark.parametrize(
    ("worker", "workers", "order"),
    [
        ("gw0", "4", "abcdefgh"),
        ("gw1", "4", "cdefghab"),
        ("gw3", "4", "ghabcdef"),
        ("gw1", "2", "efghabcd"),
        ("abc", "1", "abcdefgh"),  # a lab's name, given by hand
        (None, None, "abcdefgh"),
    ],
)
def test_each_worker_compiles_a_share_of_a_folder(
    worker: str | None, workers: str | None, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WORKER", worker), ("WORKER_COUNT", workers)):
        if value is None:
            monkeypatch.delenv(f"PYTEST_XDIST_{name}", raising=False)
        else:
            monkeypatch.setenv(f"PYTEST_XDIST_{name}", value)
    assert "".join(from_own_place(list("abcdefgh"))) == order
    assert from_own_place([]) == []
