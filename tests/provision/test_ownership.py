"""Whose a cluster is: names are shared in an account, ids are not, and accounts differ."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from cli.commands.down import _ask_for_name
from cli.main import app
from cli.output import Output
from config.errors import InputError
from config.progress import silent
from config.target import Target
from operations.chosen_target import ChosenTarget
from operations.release import check_owner
from provision.aws.account import Caller, owner_tag
from provision.aws.clients import client
from provision.aws.resources import Resource, find_all
from provision.capacity.claim import _group
from provision.down import _choose_id, down
from provision.preflight.preflight import _identity_tags
from provision.removal.sweep import sweep
from provision.state.ownership import find_ownership, is_same_owner
from provision.state.record import ClusterRecord
from provision.state.store import ClusterStore
from provision.status import clusters
from provision.up import _name_taken
from tests.cli.conftest import remembered  # noqa: F401  a fixture is found by import
from tests.provision.test_record import a_record

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

pytestmark = pytest.mark.slow

ME = "arn:aws:sts::123456789012:user/moto"
"""The caller of the lab's API."""
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
    ClusterStore(empty_region).write(with_id("bbbb"))
    seen = {status.id: status for status in clusters(ClusterStore(empty_region))}
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
    ClusterStore(empty_region).write(with_id("bbbb"))
    assert down("demo", empty_region, silent, "aaaa").removed == (f"VPC {anns}",)
    assert [one.id for one in find_all(empty_region, "demo")] == [bens]
    assert ClusterStore(empty_region).record("demo") == with_id("bbbb")


ELSEWHERE = (
    "cluster 'demo' is in AWS account 999999999999, these credentials are of 123456789012;"
    " use that account's credentials: --profile, or AWS_PROFILE"
)


def test_a_cluster_of_another_account_is_not_removed(empty_region: Target) -> None:
    ours = vpc(client(empty_region, "ec2"), "aaaa", ANN)
    ClusterStore(empty_region).write(with_id("aaaa", account="999999999999"))
    with pytest.raises(InputError) as refused:
        down("demo", empty_region, silent)
    assert str(refused.value) == ELSEWHERE
    assert [one.id for one in find_all(empty_region, "demo")] == [ours]
    assert ClusterStore(empty_region).record("demo") is not None


def test_status_does_not_call_a_cluster_of_another_account_gone(
    aws: Target,
    remembered: Target,  # noqa: F811
) -> None:
    ClusterStore(remembered).write(with_id("aaaa", account="999999999999"))
    (status,) = clusters(ClusterStore(replace(aws, state=remembered.state)))
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
    assert owner_tag(ann, replace(target, owner="team,a")) == "team_a"


def test_a_claim_lies_in_the_clusters_own_group(empty_region: Target) -> None:
    ec2 = client(empty_region, "ec2")
    tags: Any = {"gpuctl:cluster": "demo"}
    arns = {}
    for cluster_id in ("cccc", "aaaa"):
        marks = {**tags, "gpuctl:id": cluster_id}
        made = ec2.create_placement_group(
            GroupName=f"gpuctl-{cluster_id}",
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


# Whose it is


def made(cluster_id: str, owner: str, day: int | None = None) -> Resource:
    since = {} if day is None else {"CreateTime": datetime(2026, 11, day, 10, 5, tzinfo=UTC)}
    return Resource("VPC", "vpc-1", "demo", "demo", "available", since, cluster_id, owner)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            [made("aaaa", ANN, 21), made("aaaa", ANN, 20)],
            "2 resources of a cluster 'demo' exist in us-east-1, but this machine has no record of"
            f" it: it belongs to {ANN} since 2026-11-20 10:05 UTC (id aaaa); choose another name"
            f" in the cluster file, or ask {ANN} to remove it",
        ),
        (
            [made("bbbb", BEN)],
            "1 resource of a cluster 'demo' exists in us-east-1, but this machine has no record of"
            f" it: it belongs to {BEN} (id bbbb); choose another name in the cluster file, go on"
            " with it where it was made, or remove it: `gpuctl down demo`",
        ),
        (
            [made("aaaa", ANN, 20), made("bbbb", BEN, 21), made("", "")],
            "3 resources of a cluster 'demo' exist in us-east-1, but this machine has no record of"
            f" it: it belongs to unknown (id none); belongs to {ANN} since 2026-11-20 10:05 UTC (id"
            f" aaaa); belongs to {BEN} since 2026-11-21 10:05 UTC (id bbbb); choose another name in"
            f" the cluster file, or ask {ANN}, unknown to remove it",
        ),
    ],
)
def test_up_of_a_name_that_is_taken_says_whose_it_is(found: list[Resource], message: str) -> None:
    ours = with_id("bbbb").resolved
    ours = ours.model_copy(update={"tags": {**ours.tags, "gpuctl:owner": BEN}})
    assert str(_name_taken(ours, found)) == message


ROLE = "arn:aws:sts::1:assumed-role/dev"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ANN, ANN, True),
        (ANN, BEN, False),
        ("unknown", ANN, False),
        # Without a chosen name botocore names each session of a role after the time.
        (f"{ROLE}/botocore-session-1700000000", f"{ROLE}/botocore-session-1700009999", True),
        (f"{ROLE}/botocore-session-1700000000", f"{ROLE}2/botocore-session-1700009999", False),
        (f"{ROLE}/botocore-session-1700000000", f"{ROLE}/ann", False),
        (f"{ROLE}/ann", f"{ROLE}/ben", False),
    ],
)
def test_an_owner_is_a_person_and_not_a_session(one: str, other: str, *, same: bool) -> None:
    assert is_same_owner(one, other) is same


def test_the_owner_of_what_down_would_remove(empty_region: Target) -> None:
    ec2 = client(empty_region, "ec2")
    vpc(ec2, "aaaa", ANN)
    found = find_ownership("demo", empty_region)
    assert found is not None
    assert (found.id, found.owner, found.is_ours) == ("aaaa", ANN, False)
    assert find_ownership("other", empty_region) is None
    mine = find_ownership("demo", replace(empty_region, owner=ANN))
    assert mine is not None
    assert mine.is_ours
    vpc(ec2, "bbbb", BEN)
    assert find_ownership("demo", empty_region) is None  # `down` asks for an id
    chosen = find_ownership("demo", empty_region, "bbbb")
    assert chosen is not None
    assert chosen.owner == BEN
    # What this machine made is ours, whatever the credentials are called now.
    ClusterStore(empty_region).write(with_id("bbbb"))
    here = find_ownership("demo", empty_region)
    assert here is not None
    assert (here.id, here.is_ours) == ("bbbb", True)
    theirs = find_ownership("demo", empty_region, "aaaa")
    assert theirs is not None
    assert (theirs.owner, theirs.is_ours) == (ANN, False)


# The command


@pytest.fixture
def command(
    aws: Target,
    remembered: Target,  # noqa: F811
    type_in: Callable[[str], None],
) -> Any:
    """`gpuctl down` in a region where ann has a cluster; `typed` is what the person types."""
    vpc(client(aws, "ec2"), "aaaa", ANN)

    def call(*words: str, typed: str | None = None) -> None:
        if typed:
            type_in(typed)
        owner = words[1] if words else None
        ownership = check_owner(ChosenTarget(region="us-east-1"), "demo", owner=owner)
        if ownership is not None:
            _ask_for_name(ownership, Output())

    return call


BELONGS = f"cluster 'demo' (id aaaa) belongs to {ANN}"


def test_down_of_somebody_elses_cluster_asks_for_its_name(
    command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    command(typed="demo\n")
    assert capsys.readouterr().err == (
        f"Cluster 'demo' (id aaaa) belongs to {ANN}. Type its name to remove it: "
    )
    for answer in ("yes\n", "Demo\n", "\n"):
        with pytest.raises(InputError, match=r"^nothing was done; the name is 'demo'$"):
            command(typed=answer)


def test_a_script_names_the_owner(command: Any) -> None:
    command("--owner", ANN)
    with pytest.raises(InputError) as refused:
        command()
    assert str(refused.value) == (
        f"{BELONGS}, and there is no terminal to ask on; ask them to remove it, or add --owner"
        f" {ANN}"
    )
    with pytest.raises(InputError) as refused:
        command("--owner", BEN)
    assert str(refused.value) == (
        f"{BELONGS}, not to {BEN}; write --owner {ANN} if that is the one you mean"
    )


def test_yes_is_no_answer_for_somebody_elses_cluster(command: Any, empty_region: Target) -> None:
    done = CliRunner().invoke(app, ["down", "demo", "--yes"])
    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith(f"{BELONGS}, and there is no terminal to ask on")
    assert len(find_all(empty_region, "demo")) == 1
