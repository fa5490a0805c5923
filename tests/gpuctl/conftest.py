"""A cluster of two nodes, whose commands run on this machine."""

from tests.cli.conftest import healthy, remembered  # noqa: F401  fixtures
from tests.engine.session.test_session import connections  # noqa: F401  a fixture
from tests.operations.conftest import cluster  # noqa: F401  a fixture
