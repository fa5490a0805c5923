from collections.abc import Iterator
from pathlib import Path

import pytest

from config.progress import silent
from infra.pulumi_engine.installation import Engine, find_engine
from tests.infra.region import Region, Worlds


@pytest.fixture(scope="session")
def engine() -> Engine:
    return find_engine(silent)


@pytest.fixture(scope="session")
def worlds() -> Iterator[Worlds]:
    started = Worlds()
    yield started
    started.end()


@pytest.fixture
def here(tmp_path: Path, worlds: Worlds) -> Iterator[Region]:
    with worlds.region(tmp_path) as made:
        yield made
