"""The labs of the tests: each worker of pytest has its own. None touches a lab that a user has."""

import os

from lab.access_key import AccessKey
from lab.places import Places

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw")

KEY = AccessKey("testing", "testing")
"""What regions of tests, which have no machines, are signed with."""


def lab_for(purpose: str) -> Places:
    """Return the places of this worker's lab for `purpose`, at most 6 letters."""
    return Places(f"t-{purpose}-{WORKER}")
