"""One request claims a whole cluster: what is repeated, what is not, and when it is let go."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import EndpointConnectionError

from config.cluster.resolved import Resolved
from config.errors import CloudError
from config.polling import Timeouts
from config.progress import Progress, silent
from config.target import Target
from lab import fault_table
from provision.aws.clients import ATTEMPTS
from provision.aws.instance_types import offers
from provision.aws.resources import KINDS
from provision.capacity import claim
from provision.capacity.claim import CAPACITY_TIMES, NoCapacity, claim_capacity, try_zones
from tests import golden
from tests.aws_calls import Answer, ApiCall
from tests.infra.region import CREDENTIALS, Worlds, child, client, resolved
from tests.lab.world import World
from tests.plans import requests

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"

ZONES = ("us-east-1a", "us-east-1b")
SOON = replace(CAPACITY_TIMES, active=Timeouts(600, 0.05), known=Timeouts(120, 0.05))


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    return tmp_path / "faults.json"


@pytest.fixture
def there(tmp_path: Path, worlds: Worlds) -> Iterator[Target]:
    with worlds.api(tmp_path) as (url, _):
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


def test_a_claim_that_is_pending_is_awaited_before_the_launch(there: Target, faults: Path) -> None:
    wanted, told = cluster(there), list[Progress]()
    fault_table.write(faults, {"claim-pending": ["1"]})
    with claim_capacity(wanted, 2, there, told.append, SOON):
        assert [held["State"] for held in reservations(there)] == ["active"]
    assert [(p.subject, p.state, p.detail) for p in told if p.state != "running"] == [
        (ZONES[0], "start", "2 x p4d.24xlarge"),
        (ZONES[0], "done", "2 x p4d.24xlarge"),
    ]
    waits = {(p.subject, p.detail) for p in told if p.state == "running"}
    assert waits == {(ZONES[0], "AWS provisions the reservation")}


def test_a_claim_that_fails_after_aws_accepted_it_is_a_refusal_of_its_zone(
    there: Target, faults: Path
) -> None:
    wanted, told = cluster(there), list[Progress]()
    fault_table.write(faults, {"claim-failed": [ZONES[0]]})
    with claim_capacity(wanted, 2, there, told.append) as made:
        assert made.zone == ZONES[1]
    assert sorted(held["State"] for held in reservations(there)) == ["cancelled", "failed"]
    assert [(p.subject, p.detail) for p in told if p.state == "failed"] == [
        (ZONES[0], "InsufficientInstanceCapacity")
    ]
    fault_table.write(faults, {"claim-failed": list(ZONES)})
    with pytest.raises(NoCapacity) as caught, claim_capacity(wanted, 2, there, silent):
        raise AssertionError("each zone's claim failed")
    assert caught.value.message == (
        "no zone has 2 x p4d.24xlarge whole, so nothing was launched (us-east-1a:"
        " InsufficientInstanceCapacity, us-east-1b: InsufficientInstanceCapacity)"
    )


def test_a_claim_without_all_of_its_places_is_a_refusal_of_its_zone(
    there: Target, answer_calls: Callable[[Answer], None]
) -> None:
    def with_a_place_taken(call: ApiCall) -> Any:
        answer = call.ask()
        for held in answer.get("CapacityReservations", ()):
            held["AvailableInstanceCount"] -= held["AvailabilityZone"] == ZONES[0]
        return answer

    answer_calls(with_a_place_taken)
    told = list[Progress]()
    with claim_capacity(cluster(there), 2, there, told.append) as made:
        assert made.zone == ZONES[1]
    assert [held["State"] for held in reservations(there)] == ["cancelled"] * 2
    assert [(p.subject, p.detail) for p in told if p.state == "failed"] == [
        (ZONES[0], "InsufficientInstanceCapacity")
    ]


def test_nodes_that_run_take_no_place_of_a_claim(there: Target) -> None:
    """They would take all places of an open one."""
    World(there.endpoint or "").run(2)
    with claim_capacity(cluster(there), 2, there, silent):
        (held,) = reservations(there)
        assert held["AvailableInstanceCount"] == 2


def test_a_claim_that_stays_pending_ends_up(there: Target, faults: Path) -> None:
    wanted, told = cluster(there), list[Progress]()
    never = replace(CAPACITY_TIMES, active=Timeouts(0, 1))
    fault_table.write(faults, {"claim-pending": ["600"]})
    with pytest.raises(CloudError) as caught, claim_capacity(wanted, 2, there, told.append, never):
        raise AssertionError("the claim is pending")
    (held,) = reservations(there)
    which = held["CapacityReservationId"]
    assert str(caught.value) == (
        f"the reservation {which} in us-east-1a is still pending; name other zones in"
        " capacity.zones, or try again in 20 minutes, when it has ended"
    )
    # AWS cancels no reservation that is pending.
    assert (told[-1].subject, told[-1].detail) == (ZONES[0], "")
    assert [(p.subject, p.detail) for p in told if p.subject == which] == [
        (which, "not cancelled (IncorrectState): it ends by itself")
    ]


def test_a_claim_is_in_the_new_placement_group_also_before_ec2_lists_it(
    there: Target, faults: Path
) -> None:
    """Instances that start in the group would not use a claim outside of it."""
    wanted = cluster(there)
    fault_table.write(faults, {"consistency": ["1"]})
    tags: Any = [{"Key": key, "Value": value} for key, value in wanted.tags.items()]
    group = client(there).create_placement_group(
        GroupName="gpuctl-demo",
        Strategy="cluster",
        TagSpecifications=[{"ResourceType": "placement-group", "Tags": tags}],
    )["PlacementGroup"]
    with claim_capacity(wanted, 2, there, silent, SOON, has_group=True):
        (held,) = reservations(there)
        assert held["PlacementGroupArn"] == group["GroupArn"]


def test_a_placement_group_that_ec2_never_lists_is_reported(there: Target) -> None:
    never = replace(CAPACITY_TIMES, known=Timeouts(0, 1))
    with (
        pytest.raises(CloudError) as caught,
        claim_capacity(cluster(there), 2, there, silent, never, has_group=True),
    ):
        raise AssertionError("there is no group")
    assert str(caught.value) == (
        "EC2 does not list the placement group of cluster 'demo' 0 s after its creation; repeat"
        " `gpuctl up` later"
    )
    assert reservations(there) == []


def test_a_claim_that_ec2_does_not_know_yet_is_cancelled_all_the_same(
    there: Target, faults: Path
) -> None:
    wanted = cluster(there)
    fault_table.write(faults, {"consistency": ["1"]})

    def interrupt(progress: Progress) -> None:
        if progress.state == "running":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), claim_capacity(wanted, 2, there, interrupt, SOON):
        raise AssertionError("the claim is pending")
    faults.unlink()
    assert [held["State"] for held in reservations(there)] == ["cancelled"]


def test_every_state_of_a_reservation_is_one_that_exists_or_one_that_is_gone() -> None:
    """A state that botocore learns fails here, until somebody decides what it is."""
    states = set(client_model("CapacityReservationState"))
    existing = {"active", "assessing", "delayed", "payment-pending", "pending", "scheduled"}
    # AWS does not document `unavailable`: such a reservation may bill, so it is removed.
    assert states - KINDS["capacity reservation"].gone == existing | {"unavailable"}


def client_model(shape: str) -> list[str]:
    """The values of an enumeration in EC2's service model."""
    model = botocore.session.get_session().get_service_model("ec2")
    known: Any = model.shape_for(shape)
    return list(known.enum)


def test_throttling_makes_no_second_claim(there: Target, faults: Path) -> None:
    wanted = cluster(there)
    fault_table.write(faults, {"throttle": ["2"]})
    with claim_capacity(wanted, 2, there, silent):
        pass
    faults.unlink()
    assert [held["State"] for held in reservations(there)] == ["cancelled"]


def test_a_full_zone_is_left_at_once(there: Target, faults: Path, pauses: list[float]) -> None:
    wanted = cluster(there)
    fault_table.write(faults, {"no-capacity": list(ZONES)})
    with pytest.raises(NoCapacity) as caught, claim_capacity(wanted, 2, there, silent):
        raise AssertionError("nothing was to be had")
    assert caught.value.code == "InsufficientInstanceCapacity"
    # boto3 repeats an HTTP 500 seven times, for up to a minute: a pause would be such a repetition.
    assert pauses == []
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
    there: Target, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    spans: list[tuple[float, float]] = []

    def longest(least: float, most: float) -> float:
        spans.append((least, most))
        return most

    monkeypatch.setattr("provision.capacity.claim.random.uniform", longest)
    ec2 = LosesAnswers(client(there), 3)
    made = claim._claim(ec2, cluster(there), 2, ZONES[0], None)  # type: ignore[arg-type]
    assert len(ec2.tokens) == 4
    assert len(set(ec2.tokens)) == 1
    assert [held["CapacityReservationId"] for held in reservations(there)] == [made.id]
    assert spans == [(0, 1.0), (0, 2.0), (0, 4.0)]  # anywhere between: nobody keeps in step
    assert pauses == [1.0, 2.0, 4.0]


def test_what_aws_does_not_answer_at_all_is_told_in_the_end(
    there: Target, pauses: list[float]
) -> None:
    ec2 = LosesAnswers(client(there), 99)
    with pytest.raises(CloudError) as caught:
        claim._claim(ec2, cluster(there), 2, ZONES[0], None)  # type: ignore[arg-type]
    assert caught.value.code == "EndpointConnection"
    assert len(ec2.tokens) == ATTEMPTS
    assert len(pauses) == ATTEMPTS - 1


def test_the_bill_of_a_killed_client_is_that_of_the_documentation() -> None:
    page = " ".join((DOCS / "do/capacity.md").read_text().split())
    minutes = claim.HELD.total_seconds() / 60
    assert f"ends by itself after {minutes:.0f} minutes, AWS may take up to an hour more" in page
    assert f"it can bill for up to {minutes + 60:.0f} minutes" in page


def test_the_request_for_a_claim_is_as_reviewed(tmp_path: Path) -> None:
    """It differs between types only in their names."""
    folder = tmp_path / "requests"
    folder.mkdir()
    with child("lab.api", "--requests", str(folder)) as (url, _):
        there = Target("test", "us-east-1", tmp_path, endpoint=url, environment=CREDENTIALS)
        group: Any = {"ResourceType": "placement-group"}
        group["Tags"] = [{"Key": "gpuctl:cluster", "Value": "demo"}]
        client(there).create_placement_group(
            GroupName="gpuctl-demo", Strategy="cluster", TagSpecifications=[group]
        )
        for name, zones in offers(client(there), requests.TYPES).items():
            wanted = resolved(there, instance_type=name).model_copy(update={"zones": (min(zones),)})
            with claim_capacity(wanted, 2, there, silent):
                pass
    claims = [
        requests.text(operation, parameters)
        for operation, parameters in requests.recorded(folder)
        if operation == "CreateCapacityReservation"
    ]
    assert len(claims) == len(requests.TYPES)
    golden.check(requests.GOLDEN / "claims.txt", "".join(claims))
