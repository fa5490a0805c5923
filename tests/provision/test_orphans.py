"""What counts as orphaned: the rules alone, without a region."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from config.catalogue.instance_types import PUBLIC_IPV4_PRICE_USD_H
from config.cluster.resolved import ExistingStorage
from provision.aws.resources import Resource
from provision.billing.cost import leftover_price
from provision.removal.orphans import FoundCluster, Known, judge, judge_all
from provision.status import status_of
from tests.provision.test_ownership import ANN, BEN, with_id
from tests.provision.test_record import a_record

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
OLD = NOW - timedelta(hours=2)


def resource(kind: str = "NAT gateway", since: datetime | None = OLD, **fields: Any) -> Resource:
    found = {"CreateTime": since} if since else {}
    values: dict[str, Any] = {"cluster_id": "aaaa", "owner": ANN, "state": "available", **fields}
    attributes = {**found, **values.pop("attributes", {})}
    return Resource(kind, "x-1", "demo", "demo", attributes=attributes, **values)


def known(*records: Any, damaged: str = "", owners: tuple[str, ...] = (ANN,)) -> Known:
    return Known(records, frozenset({damaged} - {""}), frozenset(owners))


def verdict(*resources: Resource, known_here: Known | None = None) -> FoundCluster:
    return judge(resources, "us-east-1", known_here or known(), NOW)


def test_what_is_ours_and_old_and_unrecorded_is_orphaned() -> None:
    found = verdict(resource(), resource("VPC", None))
    assert (found.verdict, found.reasons, found.owner) == ("orphaned", (), ANN)
    assert found.since == "2026-11-23T10:00:00+00:00"
    assert found.hourly_usd == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("resources", "reasons"),
    [
        ([resource("instance")], ("its instances exist",)),
        ([resource("instance", state="stopped")], ("its instances exist",)),
        ([resource("EFS file system")], ("its EFS file system may have data",)),
        ([resource("FSx file system")] * 2, ("its FSx file system may have data",)),
        ([resource("VPC", None)], ("AWS does not report its age",)),
        (
            [resource(), resource("volume", NOW - timedelta(minutes=59))],
            ("a part of it is less than an hour old",),
        ),
        (
            [resource("instance", NOW)],
            ("its instances exist", "a part of it is less than an hour old"),
        ),
    ],
)
def test_what_another_machine_may_use_is_doubtful(
    resources: list[Resource], reasons: tuple[str, ...]
) -> None:
    found = verdict(*resources)
    assert (found.verdict, found.reasons) == ("doubtful", reasons)


def node(name: str, group: str) -> Resource:
    cluster = name.partition("-")[0]
    groups = {"SecurityGroups": [{"GroupId": "sg-own"}, {"GroupId": group}]}
    attributes = {"LaunchTime": OLD, **groups}
    return Resource("instance", "i-1", cluster, name, "running", attributes, cluster, ANN)


def test_a_doubtful_file_system_has_its_users_named() -> None:
    """By their security group: this machine may have no record of them."""
    files = resource("EFS file system")
    group = Resource("security group", "sg-files", "demo", "", "available", {}, "aaaa", ANN)
    nodes = [node("train-node0", "sg-files"), node("train-node1", "sg-files")]
    others = [node("eval-node0", "sg-eval"), node("test-node1", "sg-files")]
    judged = judge_all([files, group, *nodes, *others], "us-east-1", known(), NOW)
    assert [(c.name, c.id, c.reasons) for c in judged[:1]] == [
        (
            "demo",
            "aaaa",
            ("its EFS file system may have data, test-node1,train-node[0-1] can mount it",),
        )
    ]


def test_a_cluster_of_this_machine_that_mounts_a_doubtful_file_system_is_named() -> None:
    record = a_record("train")
    storage = ExistingStorage(id="x-1", source="x-1:/", groups={})
    mounting = record.model_copy(
        update={"resolved": record.resolved.model_copy(update={"existing_storage": storage})}
    )
    group = Resource("security group", "sg-files", "demo", "", "available", {}, "aaaa", ANN)
    resources = [resource("FSx file system"), group]
    here = known(mounting)
    assert verdict(*resources, known_here=here).reasons == (
        "its FSx file system may have data, cluster train mounts it",
    )
    region = [*resources, node("train-node0", "sg-files")]
    found = judge(resources, "us-east-1", here, NOW, region)
    assert found.reasons == ("its FSx file system may have data, cluster train mounts it",)


def machine(end: str) -> Resource:
    tags = [{"Key": "gpuctl:ends", "Value": end}] if end else []
    return resource("instance", attributes={"Tags": tags})


@pytest.mark.parametrize(
    ("ends", "reasons"),
    [
        (["2026-11-23T10:59:59+00:00"], ()),
        (["2026-11-23T11:00:00+00:00"], ("its instances exist, until 2026-11-23 11:00 UTC",)),
        (
            ["2026-11-23T09:00:00+00:00", "2026-11-24T17:30:00+00:00"],
            ("its instances exist, until 2026-11-24 17:30 UTC",),
        ),
        (["2026-11-23T09:00:00+00:00", ""], ("its instances exist",)),
        (["2026-11-23T09:00:00"], ("its instances exist",)),
        (["yesterday"], ("its instances exist",)),
    ],
)
def test_machines_whose_leases_have_ended_are_in_use_by_nobody(
    ends: list[str], reasons: tuple[str, ...]
) -> None:
    found = verdict(*map(machine, ends), resource())
    assert (found.verdict, found.reasons) == ("doubtful" if reasons else "orphaned", reasons)


def test_an_instance_that_ends_is_no_doubt() -> None:
    assert verdict(resource("instance", state="shutting-down")).verdict == "orphaned"


@pytest.mark.parametrize(
    "foreign",
    [
        [resource(owner=BEN)],
        [resource(owner="")],
        [resource(cluster_id="")],
        [resource(), resource(owner=BEN)],
        [resource(), resource(owner="")],
    ],
)
def test_what_is_not_certainly_ours_is_never_orphaned(foreign: list[Resource]) -> None:
    assert verdict(*foreign).verdict == "foreign"
    assert verdict(*foreign, known_here=known(owners=())).verdict == "foreign"


def test_an_owner_may_be_added() -> None:
    assert verdict(resource(owner=BEN), known_here=known(owners=(ANN, BEN))).verdict == "orphaned"


def test_a_record_counts_with_its_name_id_and_region() -> None:
    assert verdict(resource(), known_here=known(with_id("aaaa"))).verdict == "recorded"
    assert verdict(resource(owner=BEN), known_here=known(with_id("aaaa"))).verdict == "recorded"
    assert verdict(resource(), known_here=known(with_id("bbbb"))).verdict == "orphaned"
    elsewhere = with_id("aaaa", region="eu-west-1")
    assert verdict(resource(), known_here=known(elsewhere)).verdict == "orphaned"


def test_a_damaged_record_keeps_every_cluster_of_its_name() -> None:
    assert verdict(resource(), known_here=known(damaged="demo")).verdict == "recorded"
    assert verdict(resource(), known_here=known(damaged="other")).verdict == "orphaned"


def test_clusters_of_one_name_are_judged_by_their_ids() -> None:
    both = judge_all(
        [resource(), resource(cluster_id="bbbb"), resource("VPC", None)],
        "us-east-1",
        known(with_id("bbbb")),
        NOW,
    )
    assert [(one.id, one.verdict, len(one.resources)) for one in both] == [
        ("aaaa", "orphaned", 2),
        ("bbbb", "recorded", 1),
    ]


def test_what_is_left_has_a_price() -> None:
    free = resource("elastic IP", None)
    used = resource("elastic IP", None, attributes={"AssociationId": "eipassoc-1"})
    volume = resource("volume", attributes={"Size": 730})
    files = resource("EFS file system", attributes={"SizeInBytes": {"Value": 73e9}})
    lustre = resource("FSx file system", attributes={"StorageType": "HDD"})
    prices = [one.hourly_usd for one in verdict(free, used, volume, files, lustre).resources]
    assert prices == [
        PUBLIC_IPV4_PRICE_USD_H,
        0.0,
        pytest.approx(0.08),
        pytest.approx(0.03),
        None,
    ]
    found = verdict(free, volume, lustre)
    assert found.unpriced == ("FSx file system",)
    assert found.hourly_usd == pytest.approx(0.085)


@pytest.mark.parametrize(
    ("deployment", "throughput", "usd"),
    [("SCRATCH_2", None, 0.28), ("PERSISTENT_2", 125, 0.29), ("PERSISTENT_2", 1000, 1.2),
     ("PERSISTENT_1", 50, None)],
)  # fmt: skip
def test_fsx_for_lustre_costs_by_size_and_throughput(
    deployment: str, throughput: int | None, usd: float | None
) -> None:
    lustre: dict[str, Any] = {"DeploymentType": deployment}
    if throughput:
        lustre["PerUnitStorageThroughput"] = throughput
    described = {"StorageCapacity": 1460, "StorageType": "SSD", "LustreConfiguration": lustre}
    price = leftover_price(resource("FSx file system", attributes=described))
    assert price == (None if usd is None else pytest.approx(usd))


def remains(*resources: Resource, busy: bool = False) -> list[str]:
    status = status_of("demo", "us-east-1", a_record().now("ready"), resources, busy, {})
    return [one for one in status.problems if "remains" in one]


def test_status_says_what_costs_after_the_machines_have_ended() -> None:
    """The nodes of `a_record` are terminated or forgotten."""
    gateway, vpc = resource(), resource("VPC", None)
    ended = resource("instance", state="terminated")
    files = resource("EFS file system", attributes={"SizeInBytes": {"Value": 73e9}})
    line = "no machine of it exists, and what remains costs"
    assert remains(gateway, vpc, ended) == [f"{line} $1.20 per day: NAT gateway"]
    assert remains(gateway, files) == [f"{line} $1.92 per day: NAT gateway, EFS file system"]
    unknown = resource("FSx file system")
    assert remains(unknown) == [f"{line} an unknown amount per day: FSx file system"]
    assert remains(vpc) == []
    assert remains(gateway, resource("instance", state="running")) == []
    assert remains(gateway, busy=True) == []
