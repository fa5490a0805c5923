"""The evidence of what failed."""

import pytest

from tests import evidence


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(evidence)
