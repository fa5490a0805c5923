"""One request claims a whole cluster: what is repeated, what is not, and when it is let go."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.errors import CloudError
from config.progress import silent
from config.resolved import Resolved
from config.target import Target
from provision.claim import NoCapacity, claimed, in_some_zone
from tests.infra.region import CREDENTIALS, child, client, resolved

ZONES = ("us-east-1a", "us-east-1b")


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    return tmp_path / "faults.json"


@pytest.fixture
def there(tmp_path: Path, faults: Path) -> Iterator[Target]:
    with child("lab.api", "--faults", str(faults)) as (url, _):
        yield Target("test", "us-east-1", tmp_path, endpoint=url, environment=CREDENTIALS)


def cluster(there: Target, **changes: Any) -> Resolved:
    return resolved(there, **changes).model_copy(update={"zones": ZONES})


def reservations(there: Target) -> list[Any]:
    return list(client(there).describe_capacity_reservations()["CapacityReservations"])


def test_a_claim_is_held_and_let_go(there: Target) -> None:
    with claimed(cluster(there), 2, there, silent) as claim:
        (held,) = reservations(there)
        assert (held["CapacityReservationId"], held["AvailabilityZone"]) == (claim.id, ZONES[0])
        assert (held["State"], held["TotalInstanceCount"]) == ("active", 2)
        assert "PlacementGroupArn" not in held  # no group exists
    (held,) = reservations(there)
    assert held["State"] == "cancelled"


def test_throttling_makes_no_second_claim(there: Target, faults: Path) -> None:
    wanted = cluster(there)
    faults.write_text(json.dumps({"throttle": ["2"]}))
    with claimed(wanted, 2, there, silent):
        pass
    faults.unlink()
    assert [held["State"] for held in reservations(there)] == ["cancelled"]


def test_a_full_zone_is_left_at_once(there: Target, faults: Path) -> None:
    wanted = cluster(there)
    faults.write_text(json.dumps({"no-capacity": list(ZONES)}))
    began = time.monotonic()
    with pytest.raises(NoCapacity) as caught, claimed(wanted, 2, there, silent):
        raise AssertionError("nothing was to be had")
    # boto3 would have repeated each of the two HTTP 500 seven times, for up to a minute and more.
    assert time.monotonic() - began < 5
    assert caught.value.code == "InsufficientInstanceCapacity"
    assert reservations(there) == []


def test_what_no_zone_can_help_is_told_at_once(there: Target) -> None:
    tried: list[str] = []

    def attempt(zone: str) -> None:
        tried.append(zone)
        raise CloudError("the quota is used up", "", "VcpuLimitExceeded")

    with pytest.raises(CloudError, match=r"^the quota is used up$"):
        in_some_zone(cluster(there, capacity={"wait": "1h"}), "2 x p4d", attempt, silent)
    assert tried == ["us-east-1a"]
