"""`gpuctl down`: what it removed and what the cluster cost, from a region's own times."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from cli.main import app
from config.errors import CloudError
from config.target import Target
from engine.record.history import History
from nodes.openssh import write_hosts
from provision.aws.clients import client
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.aws.resources import KINDS
from provision.billing.ledger import cluster_costs
from provision.removal import verification
from provision.state.store import ClusterStore
from tests.aws_calls import Answer, ApiCall
from tests.engine.conftest import make_inventory, make_plan
from tests.provision.test_ownership import ME, vpc, with_id
from tests.provision.test_record import a_record
from tests.provision.test_sweep import make_cluster, tagged

pytestmark = pytest.mark.slow

HOURS = 3


@pytest.fixture
def old_cluster(
    aws: Target,
    without_engine: None,
    remembered: Target,
    answer_calls: Callable[[Answer], None],
) -> str:
    """A cluster of one p4d node with its NAT gateway, up for three hours."""
    ami = image_id(client(aws, "ssm"), BASTION_IMAGE)
    make_cluster(client(aws, "ec2"), ami, "demo")
    since = datetime.now(UTC) - timedelta(hours=HOURS)
    ready = a_record().model_copy(update={"created": since}).now("ready")
    ClusterStore(remembered).write(ready)
    _made(since, answer_calls)
    return "demo"


def _made(since: datetime, answer_calls: Callable[[Answer], None]) -> None:
    """The region says that instances and gateways have been there since then."""

    def asked(call: ApiCall) -> Any:
        answer = call.ask()
        for reservation in answer.get("Reservations", ()):
            for instance in reservation["Instances"]:
                instance["LaunchTime"] = since
        for gateway in answer.get("NatGateways", ()):
            gateway["CreateTime"] = since
        return answer

    answer_calls(asked)


def test_the_cost_is_shown(old_cluster: str, remembered: Target) -> None:
    folder = ClusterStore(remembered).folder(old_cluster)
    hosts = write_hosts(make_inventory(2).model_copy(update={"folder": folder}))
    done = CliRunner().invoke(app, ["down", old_cluster, "--yes"])
    assert done.exit_code == 0, done.output
    assert not hosts.exists(), "the user's ssh settings have no hosts of it"
    first, *rest = done.stdout.splitlines()
    assert first.startswith("Cluster demo (without id) in us-east-1, owner unknown: 1 x p4d")
    assert rest[0] == "  lost: 1 volume, 100 GiB"
    last = rest[-1]
    # Three hours of p4d.24xlarge at $21.957642, and of a NAT gateway with its address at $0.05.
    found = re.fullmatch(
        r"Cluster demo is gone: (\d+) resources removed, up 3h \d\dm,"
        r" about \$([\d.]+) at list price\.",
        last,
    )
    assert found, last
    assert int(found[1]) > 10
    assert float(found[2]) == pytest.approx(HOURS * (21.957642 + 0.045 + 0.005), rel=0.05)


def test_the_cost_is_in_the_json_and_kept(old_cluster: str, remembered: Target) -> None:
    done = CliRunner().invoke(app, ["down", old_cluster, "--yes", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["name"] == "demo"
    plan = told["plan"]
    assert plan["runs"] == []
    assert plan["losses"]["data"] == [
        "1 volume, 100 GiB",
        "local disks of 1 x p4d.24xlarge, 8000 GB each",
    ]
    assert plan["losses"]["machines"] == {"p4d.24xlarge": 1}
    assert plan["losses"]["spent_usd"] == pytest.approx(told["cost_usd"], rel=0.01)
    assert told["cost_usd"] == pytest.approx(HOURS * (21.957642 + 0.045 + 0.005), rel=0.05)
    (kept,), _ = cluster_costs(remembered)
    assert (kept.name, kept.cost_usd) == ("demo", told["cost_usd"])
    assert (kept.ended - kept.began).total_seconds() == told["seconds_up"]  # type: ignore[operator]
    assert told["seconds_up"] == pytest.approx(HOURS * 3600, abs=600)
    assert len(told["removed"]) > 10


@pytest.mark.usefixtures("without_engine")
@pytest.mark.parametrize(("which", "is_over"), [("aaaa", True), ("bbbb", False)])
def test_runs_are_lost_with_this_machines_cluster_alone(
    aws: Target, remembered: Target, which: str, is_over: bool
) -> None:
    ClusterStore(remembered).write(with_id("aaaa", account="123456789012"))
    vpc(client(aws, "ec2"), "bbbb", ME)  # another cluster of this name
    plan = make_plan(nodes=1)
    with History(remembered.runs) as history:
        history.begin(plan)
    done = CliRunner().invoke(app, ["down", "demo", "--id", which, "--yes"])
    assert done.exit_code == 0, done.output
    with History(remembered.runs) as history:
        assert history.find(plan.run_id).is_over is is_over


def test_the_end_is_proved_by_asking(old_cluster: str, pauses: list[float]) -> None:
    done = CliRunner().invoke(app, ["down", old_cluster, "--yes", "--verify", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["plan"]["losses"]["name"] == "demo"
    proof = document["verified"]
    assert (proof["region"], proof["tags"]) == ("us-east-1", {"gpuctl:cluster": "demo"})
    assert proof["kinds"] == list(KINDS)
    assert list(proof["instances"].values()) == ["terminated"]
    assert pauses[-1:] == [verification.PAUSE_S]


def test_what_appears_late_is_no_proof(
    empty_region: Target, pauses: list[float], answer_calls: Callable[[Answer], None]
) -> None:
    ec2 = client(empty_region, "ec2")
    vpcs: list[str] = []

    def appear(call: ApiCall) -> Any:
        answer = call.ask()
        if call.operation == "DescribeVpcs" and not vpcs:  # the first list is without it
            vpcs.append("")
            made = ec2.create_vpc(CidrBlock="10.7.0.0/16", TagSpecifications=tagged("vpc", "demo"))
            vpcs[0] = made["Vpc"]["VpcId"]
        return answer

    answer_calls(appear)
    with pytest.raises(CloudError) as late:
        verification.verify("demo", "", empty_region)
    assert str(late.value) == (
        f"AWS still lists VPC {vpcs[0]} (available); repeat `gpuctl down demo --verify`"
    )


def test_what_may_not_be_listed_is_no_proof(
    empty_region: Target,
    pauses: list[float],
    answer_calls: Callable[[Answer], None],
) -> None:

    def asked(call: ApiCall) -> Any:
        if call.operation == "ListRoles":
            raise ClientError({"Error": {"Code": "AccessDenied"}}, call.operation)
        return call.ask()

    answer_calls(asked)
    with pytest.raises(CloudError) as denied:
        verification.verify("demo", "aaaa", empty_region)
    assert str(denied.value) == (
        "it is not verified that cluster 'demo' is gone: these credentials may not list IAM roles"
        " (iam:ListRoles, iam:GetRole); use credentials that may"
    )
