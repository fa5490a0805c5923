"""One request claims a whole cluster: what is repeated, what is not, and when it is let go."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from config.cluster.resolved import Resolved
from config.errors import CloudError
from config.progress import silent
from config.target import Target
from provision.aws.clients import ATTEMPTS
from provision.launch import claim
from provision.launch.claim import NoCapacity, claim_capacity, try_zones
from tests.infra.region import CREDENTIALS, child, client, resolved

DOCS = Path(__file__).parents[2] / "docs"

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
    with claim_capacity(cluster(there), 2, there, silent) as claim:
        (held,) = reservations(there)
        assert (held["CapacityReservationId"], held["AvailabilityZone"]) == (claim.id, ZONES[0])
        assert (held["State"], held["TotalInstanceCount"]) == ("active", 2)
        assert "PlacementGroupArn" not in held  # no group exists
    (held,) = reservations(there)
    assert held["State"] == "cancelled"


def test_throttling_makes_no_second_claim(there: Target, faults: Path) -> None:
    wanted = cluster(there)
    faults.write_text(json.dumps({"throttle": ["2"]}))
    with claim_capacity(wanted, 2, there, silent):
        pass
    faults.unlink()
    assert [held["State"] for held in reservations(there)] == ["cancelled"]


def test_a_full_zone_is_left_at_once(
    there: Target, faults: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = cluster(there)
    faults.write_text(json.dumps({"no-capacity": list(ZONES)}))
    # boto3 repeats an HTTP 500 seven times, for up to a minute: a pause would be such a repetition.
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("a full zone was asked again"))
    with pytest.raises(NoCapacity) as caught, claim_capacity(wanted, 2, there, silent):
        raise AssertionError("nothing was to be had")
    assert caught.value.code == "InsufficientInstanceCapacity"
    assert reservations(there) == []


def test_what_no_zone_can_help_is_told_at_once(there: Target) -> None:
    tried: list[str] = []

    def attempt(zone: str) -> None:
        tried.append(zone)
        raise CloudError("the quota is used up", "", "VcpuLimitExceeded")

    with pytest.raises(CloudError, match=r"^the quota is used up$"):
        try_zones(cluster(there, capacity={"wait": "1h"}), "2 x p4d", attempt, silent)
    assert tried == ["us-east-1a"]


class LosesAnswers:
    """EC2 that does what it is asked for, and whose first answers do not arrive."""

    def __init__(self, ec2: Any, losses: int) -> None:
        self._ec2, self._losses = ec2, losses
        self.tokens: list[str] = []

    def create_capacity_reservation(self, **request: Any) -> Any:
        answer = self._ec2.create_capacity_reservation(**request)
        self.tokens.append(request["ClientToken"])
        if len(self.tokens) <= self._losses:
            raise EndpointConnectionError(endpoint_url="https://ec2.us-east-1.amazonaws.com")
        return answer


def test_a_lost_answer_is_asked_for_again_with_jitter_and_the_same_token(
    there: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[tuple[float, float]] = []
    monkeypatch.setattr("provision.launch.claim.random.uniform", lambda least, most: (least, most))
    monkeypatch.setattr("provision.launch.claim.time.sleep", pauses.append)
    ec2 = LosesAnswers(client(there), 3)
    made = claim._claim(ec2, cluster(there), 2, ZONES[0], None)  # type: ignore[arg-type]
    assert len(ec2.tokens) == 4
    assert len(set(ec2.tokens)) == 1
    assert [held["CapacityReservationId"] for held in reservations(there)] == [made.id]
    assert pauses == [(0, 1.0), (0, 2.0), (0, 4.0)]  # anywhere between: nobody keeps in step


def test_what_aws_does_not_answer_at_all_is_told_in_the_end(
    there: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provision.launch.claim.time.sleep", lambda _: None)
    ec2 = LosesAnswers(client(there), 99)
    with pytest.raises(CloudError) as caught:
        claim._claim(ec2, cluster(there), 2, ZONES[0], None)  # type: ignore[arg-type]
    assert caught.value.code == "EndpointConnection"
    assert len(ec2.tokens) == ATTEMPTS


def test_the_bill_of_a_killed_client_is_that_of_the_documentation() -> None:
    page = " ".join((DOCS / "capacity.md").read_text().split())
    minutes = claim.HELD.total_seconds() / 60
    assert f"ends by itself after {minutes:.0f} minutes, AWS may take up to an hour more" in page
    assert f"it can bill for up to {minutes + 60:.0f} minutes" in page
