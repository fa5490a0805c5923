"""The lab's API on loopback, shared with the tests of `provision`."""

from tests.infra.conftest import engine, here, worlds  # noqa: F401  fixtures are found by import
from tests.provision.conftest import asked_only, empty_region, target  # noqa: F401  as well
