"""One cluster of two nodes, on which all tests of this folder run jobs.

They stay on one worker (`TOGETHER` in tests/conftest.py).
"""

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file
from tests.e2e.region import what_bills


@pytest.fixture(scope="package")
def cluster(gpuctl: Gpuctl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = cluster_file(tmp_path_factory.mktemp("jobs"), "jobs")
    gpuctl("--lab", "up", str(file), "--yes")
    yield "jobs"
    gpuctl("--lab", "down", "jobs", "--yes")
    assert what_bills(gpuctl, "jobs") == {}
