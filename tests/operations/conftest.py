"""What this machine remembers, and nodes whose commands run here."""

import pytest

from config.target import Target
from tests.cli.conftest import remember, remembered  # noqa: F401  a fixture
from tests.engine.conftest import make_inventory
from tests.engine.session.test_session import (
    LocalConnections,
    connections,  # noqa: F401  a fixture
    on_this_machine,
)


@pytest.fixture
def cluster(connections: LocalConnections, remembered: Target) -> Target:  # noqa: F811
    """Two nodes that are ready, whose commands run here."""
    remember(on_this_machine(make_inventory(2)), remembered)
    return remembered
