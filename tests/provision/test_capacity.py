"""What capacity there is of a type, as the region's API says it."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from botocore.exceptions import ClientError

from config.errors import CloudError, InputError
from config.target import Target
from provision.aws.clients import client
from provision.capacity.offers import BlockOffering, BlockSize, buy_block, capacity
from tests.aws_calls import Answer, ApiCall

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d")
START = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)
END = START + timedelta(days=1)
PRICES = [
    {"AvailabilityZone": "us-east-1b", "SpotPrice": "9.5", "Timestamp": START},
    {"AvailabilityZone": "us-east-1a", "SpotPrice": "8.5", "Timestamp": END},
    {"AvailabilityZone": "us-east-1a", "SpotPrice": "7.5", "Timestamp": START},
]
RESERVATIONS = [
    {
        "CapacityReservationId": "cr-2",
        "ReservationType": "capacity-block",
        "AvailabilityZone": "us-east-1b",
        "State": "scheduled",
        "TotalInstanceCount": 4,
        "AvailableInstanceCount": 3,
        "CreateDate": START - timedelta(days=9),
        "StartDate": START,
        "EndDate": END,
    },
    {
        "CapacityReservationId": "cr-1",
        "AvailabilityZone": "us-east-1a",
        "State": "active",
        "TotalInstanceCount": 2,
        "AvailableInstanceCount": 1,
        "CreateDate": START,
    },
]
OFFERINGS = [
    {
        "CapacityBlockOfferingId": f"cbo-{zone}",
        "AvailabilityZone": zone,
        "InstanceCount": 2,
        "CapacityBlockDurationHours": 24,
        "StartDate": start,
        "EndDate": start + timedelta(days=1),
        "UpfrontFee": "1053.5",
    }
    for zone, start in (("us-east-1b", END), ("us-east-1c", START), ("us-east-1a", START))
]


@pytest.fixture
def asked(answer_calls: Callable[[Answer], None]) -> dict[str, Any]:
    """Requests by operation. The account has what is above, whatever it is asked for."""
    requests: dict[str, Any] = {}
    told: dict[str, Any] = {
        "DescribeSpotPriceHistory": {"SpotPriceHistory": PRICES},
        "DescribeCapacityReservations": {"CapacityReservations": RESERVATIONS},
        "DescribeCapacityBlockOfferings": {"CapacityBlockOfferings": OFFERINGS},
    }

    def answer(call: ApiCall) -> Any:
        requests[call.operation] = call.request
        return told.get(call.operation) or call.ask()

    answer_calls(answer)
    return requests


def test_what_there_is(target: Target, asked: dict[str, Any]) -> None:
    found = capacity("p4d.24xlarge", BlockSize(2), target)
    assert (found.instance_type, found.region, found.size.nodes) == ("p4d.24xlarge", "us-east-1", 2)
    assert found.zones == ZONES
    assert found.on_demand_usd_h == pytest.approx(21.957642)
    # The newest price of each zone, zones in their order.
    assert list(found.spot_usd_h.items()) == [("us-east-1a", 8.5), ("us-east-1b", 9.5)]
    ours = [(r.id, r.type, r.zone, r.state, r.total, r.free) for r in found.reservations]
    assert ours == [
        ("cr-1", "reservation", "us-east-1a", "active", 2, 1),
        ("cr-2", "capacity-block", "us-east-1b", "scheduled", 4, 3),
    ]
    # A reservation begins when it was made, unless it says otherwise; it may have no end.
    assert [(r.starts, r.ends) for r in found.reservations] == [
        ("2026-11-20T12:30+00:00", None),
        ("2026-11-20T12:30+00:00", "2026-11-21T12:30+00:00"),
    ]
    assert [(b.id, b.zone, b.starts) for b in found.blocks] == [
        ("cbo-us-east-1a", "us-east-1a", "2026-11-20T12:30+00:00"),
        ("cbo-us-east-1c", "us-east-1c", "2026-11-20T12:30+00:00"),
        ("cbo-us-east-1b", "us-east-1b", "2026-11-21T12:30+00:00"),
    ]
    assert {(b.count, b.hours, b.upfront_usd) for b in found.blocks} == {(2, 24, 1053.5)}
    assert {b.node_usd_h for b in found.blocks} == {21.9479}


def test_what_is_asked_for(target: Target, asked: dict[str, Any]) -> None:
    before = datetime.now(UTC)
    capacity("p4d.24xlarge", BlockSize(3, 7, date(2026, 12, 1)), target)
    spot = asked["DescribeSpotPriceHistory"]
    assert before <= spot.pop("StartTime") <= datetime.now(UTC)  # what holds now
    assert spot == {"InstanceTypes": ["p4d.24xlarge"], "ProductDescriptions": ["Linux/UNIX"]}
    assert asked["DescribeCapacityReservations"] == {
        "Filters": [
            {"Name": "instance-type", "Values": ["p4d.24xlarge"]},
            {"Name": "state", "Values": ["active", "scheduled", "pending", "payment-pending"]},
        ]
    }
    assert asked["DescribeCapacityBlockOfferings"] == {
        "InstanceType": "p4d.24xlarge",
        "InstanceCount": 3,
        "CapacityDurationHours": 7 * 24,
        "StartDateRange": datetime(2026, 12, 1, tzinfo=UTC),
    }


def test_a_type_that_no_zone_offers(target: Target) -> None:
    with pytest.raises(InputError) as caught:
        capacity("p4d.25xlarge", BlockSize(2), target)
    assert caught.value.message == "no zone of us-east-1 offers p4d.25xlarge"
    assert caught.value.hint == "nearest names: p4d.24xlarge, p4de.24xlarge, g4dn.12xlarge"
    with pytest.raises(InputError) as caught:
        capacity("zzz", BlockSize(2), target)
    assert caught.value.hint == "choose another type or region"


@pytest.mark.parametrize("code", ["InvalidParameterValue", "Unsupported", "UnsupportedOperation"])
def test_a_type_that_is_not_sold_so_has_no_price_and_no_block(
    target: Target, answer_calls: Callable[[Answer], None], code: str
) -> None:
    refuse(answer_calls, code)
    found = capacity("p4d.24xlarge", BlockSize(2), target)
    assert (found.spot_usd_h, found.blocks) == ({}, ())
    assert found.zones == ZONES


def test_another_refusal_is_told(target: Target, answer_calls: Callable[[Answer], None]) -> None:
    refuse(answer_calls, "UnauthorizedOperation")
    with pytest.raises(CloudError, match="UnauthorizedOperation: No"):
        capacity("p4d.24xlarge", BlockSize(2), target)


def refuse(answer_calls: Callable[[Answer], None], code: str) -> None:
    """AWS refuses to speak of spot prices and of blocks."""

    def answer(call: ApiCall) -> Any:
        if call.operation in ("DescribeSpotPriceHistory", "DescribeCapacityBlockOfferings"):
            raise ClientError({"Error": {"Code": code, "Message": "No."}}, call.operation)
        return call.ask()

    answer_calls(answer)


def test_the_region_itself_answers(target: Target) -> None:
    """No answer of the test's: the questions are such that the API understands them."""
    made = client(target, "ec2").describe_availability_zones()["AvailabilityZones"]
    assert set(capacity("p4d.24xlarge", BlockSize(2), target).zones) <= {
        zone["ZoneName"] for zone in made
    }


def test_a_purchase_that_aws_fails_to_answer_is_not_repeated(tmp_path: Path) -> None:
    class Failing(BaseHTTPRequestHandler):
        requests = 0

        def do_POST(self) -> None:
            Failing.requests += 1
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Write no line for each request."""

    block = BlockOffering("cb-1", ZONES[0], 2, 48, "", "", 5283.84, 55.04)
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    with ThreadingHTTPServer(("127.0.0.1", 0), Failing) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        url = f"http://127.0.0.1:{server.server_port}"
        target = Target("aws", "us-east-1", tmp_path, endpoint=url, environment=keys)
        with pytest.raises(CloudError) as caught:
            buy_block(block, "ann", target)
        server.shutdown()
    assert Failing.requests == 1
    assert caught.value.message.startswith(
        "AWS may have sold the block, and charged $5,283.84: AWS refused PurchaseCapacityBlock: "
    )
    assert caught.value.hint == (
        "`aws ec2 describe-capacity-reservations --region us-east-1` lists it if so; buy again only"
        " if it does not"
    )
