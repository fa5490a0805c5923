"""Spot instances that the lab takes back, as AWS does: notice, metadata, request, end."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from lab import fault_kinds, fault_table
from lab.api.server import ApiServer
from tests.lab.world import World, refused
from tests.labs import KEY

pytestmark = pytest.mark.slow

SPOT = {"MarketType": "spot"}
TOKEN = "/latest/api/token"
TTL = "X-aws-ec2-metadata-token-ttl-seconds"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(KEY, faults=tmp_path / "faults.json") as made:
        yield made


@pytest.fixture
def region(api: ApiServer) -> World:
    return World(api.url)


class Asked:
    """The metadata service as the instance at `address` sees it."""

    def __init__(self, api: ApiServer, address: str) -> None:
        self._client, self._from = Client(api.metadata), {"REMOTE_ADDR": address}
        self.token = self.ask("PUT", TOKEN, {TTL: "60"}).text

    def ask(self, method: str, path: str, headers: dict[str, str]) -> TestResponse:
        return self._client.open(path, method=method, headers=headers, environ_overrides=self._from)

    def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        headers = {"X-aws-ec2-metadata-token": self.token if token is None else token}
        answer = self.ask("GET", f"/latest/{path}", headers)
        return answer.status_code, answer.text


def interrupt(folder: Path, seconds: int, *instances: str) -> None:
    given = fault_kinds.parse("spot-interruption", (*instances, str(seconds)))
    fault_table.write(folder / "faults.json", {"spot-interruption": given})


def requests(region: World, **asked: Any) -> dict[str, Any]:
    found = region.ec2.describe_spot_instance_requests(**asked)["SpotInstanceRequests"]
    return {one["InstanceId"]: one for one in found}


def statuses(region: World, **asked: Any) -> dict[str, tuple[str, str]]:
    found = requests(region, **asked)
    return {i: (one["State"], one["Status"]["Code"]) for i, one in found.items()}


def test_a_spot_instance_has_a_request_and_others_have_none(region: World) -> None:
    (one,) = region.run(InstanceMarketOptions=SPOT)
    region.run()
    assert statuses(region) == {one: ("active", "fulfilled")}
    told = requests(region)[one]
    assert region.instance(one)["SpotInstanceRequestId"] == told["SpotInstanceRequestId"]
    assert told["SpotInstanceRequestId"].startswith("sir-")
    region.ec2.terminate_instances(InstanceIds=[one])
    assert statuses(region) == {one: ("closed", "instance-terminated-by-user")}


def test_a_cancelled_request_leaves_its_instance_running(region: World) -> None:
    tags: Any = [{"ResourceType": "spot-instances-request", "Tags": [{"Key": "k", "Value": "v"}]}]
    one, other = region.run(2, InstanceMarketOptions=SPOT, TagSpecifications=tags)
    asked = requests(region)[one]
    assert asked["Tags"] == [{"Key": "k", "Value": "v"}]
    answer = region.ec2.cancel_spot_instance_requests(
        SpotInstanceRequestIds=[asked["SpotInstanceRequestId"]]
    )
    assert answer["CancelledSpotInstanceRequests"] == [
        {"SpotInstanceRequestId": asked["SpotInstanceRequestId"], "State": "cancelled"}
    ]
    assert region.state(one) == "running"
    assert statuses(region) == {
        one: ("cancelled", "request-canceled-and-instance-running"),
        other: ("active", "fulfilled"),
    }
    region.ec2.terminate_instances(InstanceIds=[one])
    assert statuses(region)[one] == ("cancelled", "instance-terminated-by-user")


def test_a_request_that_does_not_exist_is_refused(region: World) -> None:
    unknown = ["sir-12345678"]
    text = "The spot instance request ID 'sir-12345678' does not exist"
    with refused("InvalidSpotInstanceRequestID.NotFound", text):
        region.ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=unknown)
    with refused("InvalidSpotInstanceRequestID.NotFound", text):
        region.ec2.describe_spot_instance_requests(SpotInstanceRequestIds=unknown)


def test_a_spot_instance_has_no_protection_against_termination(region: World) -> None:
    (one,) = region.run(InstanceMarketOptions=SPOT)
    text = "Modifying 'disableApiTermination' is not supported for spot instances."
    for value in (True, False):
        with refused("UnsupportedOperation", text):
            region.ec2.modify_instance_attribute(
                InstanceId=one, DisableApiTermination={"Value": value}
            )
    (plain,) = region.run()
    region.ec2.modify_instance_attribute(InstanceId=plain, DisableApiTermination={"Value": False})


def test_a_notice_is_shown_before_the_instance_goes(region: World, tmp_path: Path) -> None:
    one, other = region.run(2, InstanceMarketOptions=SPOT)
    (plain,) = region.run()
    before = datetime.now(UTC)
    interrupt(tmp_path, 120, one, plain)  # one that is no spot instance hears nothing
    marked = {"Name": "status-code", "Values": ["marked-for-termination"]}
    assert list(requests(region, Filters=[marked])) == [one]
    told = requests(region)[one]
    assert told["State"] == "active"
    assert abs(told["Status"]["UpdateTime"] - before) < timedelta(seconds=5)
    assert {region.state(i) for i in (one, other, plain)} == {"running"}
    (tmp_path / "faults.json").unlink()  # cleared: AWS would not, a rehearsal may
    assert statuses(region)[one] == ("active", "fulfilled")


def test_an_instance_whose_time_has_come_is_terminated_as_by_aws(
    region: World, tmp_path: Path
) -> None:
    one, other = region.run(2, InstanceMarketOptions=SPOT)
    interrupt(tmp_path, 0, one)
    for _ in range(200):
        if region.state(one) == "terminated":
            break
        time.sleep(0.05)
    gone = region.instance(one)
    assert gone["StateReason"] == {
        "Code": "Server.SpotInstanceTermination",
        "Message": "Server.SpotInstanceTermination: Spot instance termination",
    }
    assert statuses(region) == {
        one: ("closed", "instance-terminated-no-capacity"),
        other: ("active", "fulfilled"),
    }
    assert requests(region)[one]["Status"]["Message"] == (
        "Your Spot Instance was terminated because there is no Spot capacity available that matches"
        " your request."
    )


def test_an_instance_learns_of_itself_and_of_its_notice(
    api: ApiServer, region: World, tmp_path: Path
) -> None:
    one, other = region.run(2, InstanceMarketOptions=SPOT)
    shown = region.instance(one)
    here, there = (Asked(api, region.instance(i)["PrivateIpAddress"]) for i in (one, other))
    assert here.get("meta-data/instance-id") == (200, one)
    assert there.get("meta-data/instance-id") == (200, other)
    assert here.get("meta-data/local-ipv4") == (200, shown["PrivateIpAddress"])
    assert here.get("meta-data/instance-type") == (200, "p4d.24xlarge")
    assert here.get("meta-data/placement/availability-zone") == (200, "us-east-1a")
    assert here.get("meta-data/spot/instance-action") == (404, "")
    interrupt(tmp_path, 120, one)
    status, text = here.get("meta-data/spot/instance-action")
    notice = json.loads(text)
    assert (status, notice["action"]) == (200, "terminate")
    left = datetime.fromisoformat(notice["time"]) - datetime.now(UTC)
    assert timedelta(seconds=110) < left < timedelta(seconds=121)
    assert there.get("meta-data/spot/instance-action") == (404, "")


def test_nothing_secret_is_told_and_nothing_to_strangers(api: ApiServer, region: World) -> None:
    (one,) = region.run(InstanceMarketOptions=SPOT)
    here = Asked(api, region.instance(one)["PrivateIpAddress"])
    for path in ("user-data", "meta-data/iam/security-credentials/", "dynamic/x", "meta-data/"):
        assert here.get(path) == (404, "")
    stranger = Asked(api, "10.213.9.9")
    assert stranger.get("meta-data/instance-id") == (404, "")
    assert stranger.get("meta-data/instance-id", here.token) == (401, "")  # another's token


def test_only_imdsv2_is_spoken(api: ApiServer, region: World) -> None:
    (one,) = region.run(InstanceMarketOptions=SPOT)
    here = Asked(api, region.instance(one)["PrivateIpAddress"])
    assert here.ask("GET", "/latest/meta-data/instance-id", {}).status_code == 401
    assert here.get("meta-data/instance-id", "made-up") == (401, "")
    for ttl in ("", "0", "21601", "soon"):
        assert here.ask("PUT", TOKEN, {TTL: ttl}).status_code == 400
    assert here.ask("PUT", TOKEN, {TTL: "60", "X-Forwarded-For": "1.2.3.4"}).status_code == 403
    assert here.ask("GET", TOKEN, {TTL: "60"}).status_code == 405
