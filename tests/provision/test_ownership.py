"""Whose a cluster is: names are shared in an account, ids are not, and accounts differ."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from config.errors import InputError
from config.progress import silent
from config.target import Target
from provision.aws.account import Caller, owner_tag
from provision.aws.clients import client, forget_clients
from provision.aws.resources import Resource, find_all
from provision.down import _choose_id, down
from provision.launch.claim import _group
from provision.preflight.preflight import _identity_tags
from provision.records import record
from provision.records.record import ClusterRecord
from provision.removal.sweep import sweep
from provision.status import clusters
from tests.cli.conftest import remembered  # noqa: F401  a fixture is found by import
from tests.infra.region import CREDENTIALS
from tests.provision.test_record import a_record

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

ANN, BEN = "arn:aws:iam::123456789012:user/ann", "arn:aws:iam::123456789012:user/ben"


def vpc(ec2: "EC2Client", cluster_id: str, owner: str) -> str:
    tags = {"gpuctl:cluster": "demo", "Name": "demo"}
    if cluster_id:
        tags |= {"gpuctl:id": cluster_id, "gpuctl:owner": owner}
    specification: Any = [
        {"ResourceType": "vpc", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
    ]
    return ec2.create_vpc(CidrBlock="10.213.0.0/16", TagSpecifications=specification)["Vpc"][
        "VpcId"
    ]


def with_id(cluster_id: str, **fields: Any) -> ClusterRecord:
    ready = a_record().now("ready")
    tags = {**ready.resolved.tags, "gpuctl:id": cluster_id}
    resolved = ready.resolved.model_copy(update={"tags": tags})
    return ready.model_copy(update={"resolved": resolved, **fields})


def test_a_sweep_takes_what_has_its_own_id(empty_region: Target) -> None:
    ec2 = client(empty_region, "ec2")
    anns, bens, old = vpc(ec2, "aaaa", ANN), vpc(ec2, "bbbb", BEN), vpc(ec2, "", "")
    assert sweep(empty_region, "demo", "bbbb", silent) == (f"VPC {bens}",)
    assert sweep(empty_region, "demo", "", silent) == (f"VPC {old}",)
    assert [one.id for one in find_all(empty_region, "demo")] == [anns]


def test_status_tells_clusters_of_one_name_apart(empty_region: Target) -> None:
    ec2 = client(empty_region, "ec2")
    vpc(ec2, "aaaa", ANN)
    vpc(ec2, "bbbb", BEN)
    record.write(with_id("bbbb"), empty_region)
    seen = {status.id: status for status in clusters(empty_region)}
    assert {key: (one.state, one.owner) for key, one in seen.items()} == {
        "aaaa": ("orphaned", ANN),
        "bbbb": ("ready", BEN),
    }
    assert seen["aaaa"].problems == (
        f"this machine has no record of it; it is {ANN}'s; `gpuctl down demo --id aaaa` removes it",
    )


def resource(cluster_id: str, owner: str = "") -> Resource:
    return Resource("VPC", "vpc-1", "demo", "demo", "available", {}, cluster_id, owner)


def test_this_machines_cluster_is_the_one_that_is_meant() -> None:
    found = [resource("aaaa", ANN), resource("bbbb", BEN)]
    assert _choose_id("demo", with_id("bbbb"), found, None) == "bbbb"
    assert _choose_id("demo", with_id("cccc"), found, None) == "cccc"
    assert _choose_id("demo", with_id("bbbb"), found, "aaaa") == "aaaa"


def test_the_only_one_of_a_name_is_meant() -> None:
    assert _choose_id("demo", None, [resource("aaaa", ANN), resource("aaaa", ANN)], None) == "aaaa"
    assert _choose_id("demo", None, [resource("")], None) == ""
    assert _choose_id("demo", None, [], None) == ""


def test_among_several_one_has_to_be_choose_id() -> None:
    found = [resource("bbbb", BEN), resource("aaaa", ANN), resource("")]
    with pytest.raises(InputError) as several:
        _choose_id("demo", None, found, None)
    assert str(several.value) == (
        "3 clusters are called 'demo', and this machine has no record of any;"
        f" choose with --id: without id: unknown; aaaa: {ANN}; bbbb: {BEN}"
    )
    assert _choose_id("demo", None, found, "aaaa") == "aaaa"
    with pytest.raises(InputError, match=r"^no cluster 'demo' has the id dddd; there are: "):
        _choose_id("demo", None, found, "dddd")


def test_anothers_cluster_is_removed_by_its_id_and_ones_own_stays(empty_region: Target) -> None:
    ec2 = client(empty_region, "ec2")
    anns, bens = vpc(ec2, "aaaa", ANN), vpc(ec2, "bbbb", BEN)
    record.write(with_id("bbbb"), empty_region)
    assert down("demo", empty_region, silent, "aaaa").removed == (f"VPC {anns}",)
    assert [one.id for one in find_all(empty_region, "demo")] == [bens]
    assert record.read("demo", empty_region) == with_id("bbbb")


ELSEWHERE = (
    "cluster 'demo' is in AWS account 999999999999, these credentials are of 123456789012;"
    " use that account's credentials: --profile, or AWS_PROFILE"
)


def test_a_cluster_of_another_account_is_not_removed(empty_region: Target) -> None:
    ours = vpc(client(empty_region, "ec2"), "aaaa", ANN)
    record.write(with_id("aaaa", account="999999999999"), empty_region)
    with pytest.raises(InputError) as refused:
        down("demo", empty_region, silent)
    assert str(refused.value) == ELSEWHERE
    assert [one.id for one in find_all(empty_region, "demo")] == [ours]
    assert record.read("demo", empty_region) is not None


def test_status_does_not_call_a_cluster_of_another_account_gone(
    empty_region: Target,
    remembered: Target,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": str(empty_region.endpoint)}.items():
        monkeypatch.setenv(name, value)
    forget_clients()
    record.write(with_id("aaaa", account="999999999999"), remembered)
    (status,) = clusters(replace(empty_region, state=remembered.state))
    assert status.state == "elsewhere"
    shown = CliRunner().invoke(app, ["status"])
    assert "demo: elsewhere since " in shown.stdout
    assert "! it is in AWS account 999999999999" in shown.stdout
    one = CliRunner().invoke(app, ["status", "demo"])
    assert isinstance(one.exception, InputError)
    assert "it is in AWS account 999999999999" in str(one.exception)


def test_the_id_is_made_once(tmp_path: Path) -> None:
    target = Target("aws", "us-east-1", tmp_path)
    ann = Caller("1", "arn:aws:sts::1:assumed-role/dev/ann,x")
    first = _identity_tags(None, owner_tag(ann, target))
    assert first["gpuctl:owner"] == "arn:aws:sts::1:assumed-role/dev/ann_x"
    assert len(first["gpuctl:id"]) == 8
    assert _identity_tags(None, "arn")["gpuctl:id"] != first["gpuctl:id"]
    before = a_record().resolved.model_copy(update={"tags": first})
    assert _identity_tags(before, BEN) == first
    assert _identity_tags(a_record().resolved, BEN) == {}  # an early gpuctl made it
    assert owner_tag(ann, replace(target, owner="team,a")) == "team_a"


def test_a_claim_lies_in_the_clusters_own_group(empty_region: Target) -> None:
    ec2 = client(empty_region, "ec2")
    tags: Any = {"gpuctl:cluster": "demo"}
    arns = {}
    for cluster_id in ("", "aaaa"):
        marks = {**tags, "gpuctl:id": cluster_id} if cluster_id else tags
        made = ec2.create_placement_group(
            GroupName=f"gpuctl-{cluster_id or 'early'}",
            Strategy="cluster",
            TagSpecifications=[
                {
                    "ResourceType": "placement-group",
                    "Tags": [{"Key": k, "Value": v} for k, v in marks.items()],
                }
            ],
        )
        arns[cluster_id] = made["PlacementGroup"]["GroupArn"]
        assert _group(ec2, with_id(cluster_id).resolved) == arns[cluster_id]
    assert _group(ec2, with_id("bbbb").resolved) is None
