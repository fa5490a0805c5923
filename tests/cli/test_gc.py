"""`gpuctl gc`: what was planted by hand in two regions is found and removed, and nothing else."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner, Result

from cli.main import app
from config.errors import CloudError, InputError
from config.target import Target
from provision.aws.clients import client
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.aws.resources import find_all
from provision.state.store import ClusterStore
from tests.aws_calls import Answer, ApiCall
from tests.provision import test_sweep
from tests.provision.test_ownership import BEN, ME, with_id
from tests.provision.test_sweep import make_cluster, make_identity

pytestmark = pytest.mark.slow

WEST = "us-west-2"
TERMINAL = ["--region", "us-east-1", "gc"]


@pytest.fixture
def there(aws: Target, remembered: Target) -> Target:
    """A region for the commands of this process, with this machine's records."""
    return replace(aws, state=remembered.state)


@pytest.fixture
def old(answer_calls: Callable[[Answer], None]) -> None:
    """AWS reports that everything has been created an hour ago."""
    answer_calls(an_hour_older)


def an_hour_older(call: ApiCall) -> Any:
    return _earlier(call.ask())


def _earlier(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {key: _earlier(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [_earlier(value) for value in answer]
    return answer - timedelta(hours=1) if isinstance(answer, datetime) else answer


def plant(
    there: Target, name: str, marks: dict[str, str], nodes: tuple[str, ...] = ()
) -> list[str]:
    """Create one of each kind with these tags; return the ids of all that the cluster has."""
    more = [{"Key": key, "Value": value} for key, value in marks.items()]

    def mark(params: Any, **_: object) -> None:
        for tagged in (*params.get("TagSpecifications", ()), params):
            if "Tags" in tagged:
                tagged["Tags"] = [*tagged["Tags"], *more]

    clients: list[Any] = [client(there, "ec2"), client(there, "iam")]
    for each in clients:
        each.meta.events.register("provide-client-params", mark)
    make_cluster(clients[0], image_id(client(there, "ssm"), BASTION_IMAGE), name, nodes)
    make_identity(there, name)
    for each in clients:
        each.meta.events.unregister("provide-client-params", mark)
    return ids(there, name, marks.get("gpuctl:id", ""))


def ids(there: Target, name: str, cluster_id: str) -> list[str]:
    return [one.id for one in find_all(there, name, cluster_id=cluster_id)]


def mine(cluster_id: str) -> dict[str, str]:
    return {"gpuctl:id": cluster_id, "gpuctl:owner": ME}


def everywhere(*options: str) -> Result:
    return CliRunner().invoke(app, ["gc", *options])


def gc(*options: str) -> Result:
    return everywhere("--region", "us-east-1", *options)


def test_what_was_planted_in_two_regions_goes_and_the_rest_stays(there: Target, old: None) -> None:
    west = replace(there, region=WEST)
    gone = plant(there, "left", mine("aaaa"))
    gone_too = plant(west, "left", mine("bbbb"))
    bens = plant(there, "bens", {"gpuctl:id": "cccc", "gpuctl:owner": BEN})
    early = plant(west, "early", {})
    known = plant(west, "demo", mine("dddd"))
    runs = plant(there, "runs", mine("eeee"), ("node0",))
    ClusterStore(there).write(with_id("dddd", region=WEST))
    client(there, "ec2").create_vpc(CidrBlock="10.9.0.0/16")  # without any tag

    done = everywhere("--remove", "--yes", "--json")
    assert done.exit_code == 0, done.output
    listed = json.loads(done.stdout)
    found = {(one["name"], one["region"]): one for one in listed["clusters"]}
    assert {place: one["verdict"] for place, one in found.items()} == {
        ("left", "us-east-1"): "orphaned",
        ("left", WEST): "orphaned",
        ("bens", "us-east-1"): "foreign",
        ("early", WEST): "foreign",
        ("demo", WEST): "recorded",
        ("runs", "us-east-1"): "doubtful",
    }
    assert {WEST, "us-east-1", "ap-south-1"} < set(listed["regions"])
    assert (listed["failed"], listed["denied"]) == ([], [])
    one = found["left", WEST]
    assert sorted(part["id"] for part in one["resources"]) == sorted(gone_too)
    assert one["hourly_usd"] == pytest.approx(2 * 21.957642 + 0.05 + 100 * 0.08 / 730)
    assert one["since"] is not None

    removed = {(one["id"], one["region"]): one for one in listed["removed"]}
    assert {place: len(one["removed"]) for place, one in removed.items()} == {
        ("aaaa", "us-east-1"): len(gone),
        ("bbbb", WEST): len(gone_too),
    }
    assert [one["problem"] for one in removed.values()] == ["", ""]
    assert (ids(there, "left", "aaaa"), ids(west, "left", "bbbb")) == ([], [])
    assert ids(there, "bens", "cccc") == bens
    assert ids(west, "early", "") == early
    assert ids(west, "demo", "dddd") == known
    assert ids(there, "runs", "eeee") == runs
    assert client(there, "ec2").describe_vpcs(
        Filters=[{"Name": "cidr", "Values": ["10.9.0.0/16"]}]
    )["Vpcs"]


def test_doubts_are_said_and_overruled_by_name(there: Target) -> None:
    planted = plant(there, "left", mine("aaaa"), ("node0",))
    bens = plant(there, "bens", {"gpuctl:id": "cccc", "gpuctl:owner": BEN})
    shown = gc().stdout.splitlines()
    assert shown[0].startswith(
        "left (aaaa) in us-east-1: doubtful (its instances exist, a part of it is less than an hour"
        " old), $"
    )
    assert any(line.startswith("  NAT gateway") and "$0.050" in line for line in shown)
    (line,) = [line for line in shown if line.startswith("bens (cccc)")]
    assert line.startswith(f"bens (cccc) in us-east-1: it is {BEN}'s, no instance, $43.98 per hour")
    assert line.endswith(
        "; `gpuctl status --region us-east-1` shows it,"
        " `gpuctl down bens --id cccc --region us-east-1` removes it"
    )
    assert shown[-1].startswith(
        f"{len(planted)} resources of 1 cluster, 1 of them instances in us-east-1 of account"
        " 123456789012, without a record on this machine: $"
    )
    assert gc("--remove", "--yes").exit_code == 0
    assert ids(there, "left", "aaaa") == planted

    done = gc("--remove", "--yes", "--doubtful", "--owner", BEN)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-2:] == [
        f"bens (cccc) in us-east-1: {len(bens)} resources removed.",
        f"left (aaaa) in us-east-1: {len(planted)} resources removed.",
    ]
    assert ids(there, "left", "aaaa") == ids(there, "bens", "cccc") == []
    assert len(bens) > 10
    assert gc().stdout == "Nothing is orphaned in us-east-1 of account 123456789012.\n"


def test_nothing_goes_without_an_answer(there: Target, old: None) -> None:
    planted = plant(there, "left", mine("aaaa"))
    assert gc().exit_code == 0
    refused = gc("--remove")
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == (
        f"there is no terminal to ask on: Remove {len(planted)} resources of 1 cluster?;"
        " add --yes if that is what you want"
    )
    alone = gc("--yes")
    assert str(alone.exception) == "--doubtful and --yes are for --remove alone; add --remove"
    assert ids(there, "left", "aaaa") == planted


def test_what_changes_during_the_question_stays(
    there: Target, old: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = plant(there, "left", mine("aaaa"))
    confirm = "cli.output.Output.confirm"
    monkeypatch.setattr(
        confirm, lambda *_: ClusterStore(there).write(with_id("aaaa", name="left")), raising=True
    )
    done = gc("--remove")
    assert isinstance(done.exception, CloudError)
    assert str(done.exception) == (
        "left (aaaa) in us-east-1: it has changed since it was listed, and is recorded now;"
        " repeat `gpuctl gc`"
    )
    assert ids(there, "left", "aaaa") == planted


def test_a_region_that_does_not_answer_is_named(
    there: Target, answer_calls: Callable[[Answer], None]
) -> None:

    def asked(call: ApiCall) -> Any:
        operation = call.operation
        if operation == "DescribeRegions":
            return {"Regions": [{"RegionName": one} for one in (WEST, "us-east-1")]}
        if operation == "DescribeVpcs" and call.region == WEST:
            raise ClientError({"Error": {"Code": "UnauthorizedOperation"}}, operation)
        if operation == "ListRoles" and call.region == "us-east-1":
            raise ClientError({"Error": {"Code": "AccessDenied"}}, operation)
        return call.ask()

    answer_calls(asked)
    done = everywhere()
    assert done.stdout.splitlines()[1:] == [
        "REGION     FOUND                 PER HOUR",
        "us-east-1  nothing",
        "us-west-2  not known: no answer",
        "Nothing is orphaned in us-east-1 of account 123456789012.",
    ]
    assert done.stderr == (
        "gpuctl: warning: these credentials may not list IAM roles (iam:ListRoles, iam:GetRole) in"
        " us-east-1: gpuctl assumes that there is none\n"
    )
    assert isinstance(done.exception, CloudError)
    assert str(done.exception) == (
        f"1 region did not answer: {WEST}: AWS refused DescribeVpcs: UnauthorizedOperation: AWS"
        " gives no reason; nobody knows what exists there: repeat the command"
    )


def test_the_setting_says_which_regions_are_searched(
    there: Target, old: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for region in ("us-east-1", WEST, "eu-west-1"):
        ec2 = client(replace(there, region=region), "ec2")
        address = ec2.allocate_address(TagSpecifications=test_sweep.tagged("elastic-ip", "left"))
        ec2.create_tags(
            Resources=[address["AllocationId"]],
            Tags=[{"Key": key, "Value": value} for key, value in mine("aaaa").items()],
        )
    monkeypatch.setenv("GPUCTL_GC_REGIONS", f"{WEST},us-east-1,ap-south-1")
    lines = everywhere().stdout.splitlines()
    assert lines[-5:] == [
        "REGION      FOUND                    PER HOUR",
        "ap-south-1  nothing",
        "us-east-1   1 resource of 1 cluster    $0.005",
        "us-west-2   1 resource of 1 cluster    $0.005",
        "2 resources of 2 clusters in 3 regions of account 123456789012, without a record on this"
        " machine: $0.010 per hour, $0.24 per day at list prices.",
    ]
    assert "eu-west-1" in everywhere("--region", "eu-west-1").stdout


def test_who_may_not_list_the_regions_names_one(
    there: Target, answer_calls: Callable[[Answer], None]
) -> None:

    def asked(call: ApiCall) -> Any:
        if call.operation == "DescribeRegions":
            raise ClientError({"Error": {"Code": "UnauthorizedOperation"}}, call.operation)
        return call.ask()

    answer_calls(asked)
    assert gc().exit_code == 0
    assert str(everywhere().exception) == (
        "AWS refused DescribeRegions: UnauthorizedOperation: AWS gives no reason; let an"
        " administrator allow this action: `gpuctl iam-policy` prints the least policy; name a"
        " region with --region"
    )


def test_a_terminal_is_asked_for_what_is_orphaned_and_for_each_doubt(
    there: Target,
    type_in: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    answer_calls: Callable[[Answer], None],
) -> None:
    """With young parts both are doubtful; then one is old."""
    ec2: Any = client(there, "ec2")
    marks = [{"Key": key, "Value": value} for key, value in mine("aaaa").items()]
    for name in ("first", "second"):
        ec2.create_volume(
            AvailabilityZone="us-east-1a",
            Size=10,
            VolumeType="gp3",
            TagSpecifications=[
                {
                    "ResourceType": "volume",
                    "Tags": [{"Key": "gpuctl:cluster", "Value": name}, *marks],
                }
            ],
        )
    type_in("\ny\n")
    app(TERMINAL, prog_name="gpuctl", standalone_mode=False)
    assert capsys.readouterr().err == "".join(
        f"Another machine of yours may use {name} in us-east-1"
        " (a part of it is less than an hour old). Remove it too? [y/N]: "
        for name in ("first", "second")
    )
    assert (len(ids(there, "first", "aaaa")), ids(there, "second", "aaaa")) == (1, [])
    answer_calls(an_hour_older)
    type_in("\n")
    app(TERMINAL, prog_name="gpuctl", standalone_mode=False)
    assert capsys.readouterr().err == "Remove 1 resource of 1 cluster? [y/N]: "
    assert len(ids(there, "first", "aaaa")) == 1
    type_in("")
    app([*TERMINAL, "--json"], prog_name="gpuctl", standalone_mode=False)
    assert capsys.readouterr().err == ""
