from collections.abc import Iterator
from pathlib import Path

import pytest

from config.progress import silent
from infra.engine import Engine, find_engine
from tests.infra.region import Region, region


@pytest.fixture(scope="session")
def engine() -> Engine:
    return find_engine(silent)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Region]:
    with region(tmp_path) as made:
        yield made
