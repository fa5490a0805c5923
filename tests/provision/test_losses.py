"""What the removal of a cluster ends, as `gpuctl down` prints it before it asks."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cli.render.teardown import loss_lines
from config.cluster.resolved import ExistingNetwork, ExistingStorage, Reservation
from config.target import Target
from provision.aws.clients import client
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.removal.losses import Losses, find_losses
from provision.state.store import ClusterStore
from tests.provision.test_record import a_record
from tests.provision.test_sweep import make_cluster, tagged

pytestmark = pytest.mark.slow

STAYS = "  stays: logs, results and outputs of its runs on this machine"
TAGS = tagged("x", "demo")[0]["Tags"]


@pytest.fixture
def region(empty_region: Target) -> Target:
    """A region with a cluster `demo` that nobody has a record of, and one of another name."""
    ami = image_id(client(empty_region, "ssm"), BASTION_IMAGE)
    for name in ("demo", "other"):
        make_cluster(client(empty_region, "ec2"), ami, name, ("node0", "node1"))
    return empty_region


def lines(losses: Losses | None) -> list[str]:
    assert losses is not None
    return loss_lines(losses)


def test_machines_disks_and_cost_are_named(region: Target) -> None:
    first, *rest = lines(find_losses("demo", region))
    assert first.startswith(
        "Cluster demo (without id) in us-east-1, owner unknown: 2 x p4d.24xlarge, up "
    )
    assert first.endswith(" so far")
    volumes, disks, last = rest
    assert volumes.startswith("  lost: ")
    assert volumes.endswith(" GiB")
    assert (disks, last) == ("  lost: local disks of 2 x p4d.24xlarge, 8000 GB each", STAYS)


def test_data_of_shared_file_systems_is_named_with_its_size(region: Target) -> None:
    efs: Any = client(region, "efs")
    efs_id = efs.create_file_system(CreationToken="demo", Tags=TAGS)["FileSystemId"]
    fsx: Any = client(region, "fsx")
    subnet = client(region, "ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    fsx_id = fsx.create_file_system(
        FileSystemType="LUSTRE", StorageCapacity=1200, SubnetIds=[subnet], Tags=TAGS
    )["FileSystem"]["FileSystemId"]
    found = lines(find_losses("demo", region))
    assert f"  lost: EFS file system {efs_id}, 0 KiB of data" in found
    assert f"  lost: FSx file system {fsx_id}, 1200 GiB" in found
    assert not any(efs_id in line or fsx_id in line for line in lines(find_losses("other", region)))


def test_a_cluster_that_mounts_what_is_lost_is_named(region: Target) -> None:
    efs: Any = client(region, "efs")
    efs_id = efs.create_file_system(CreationToken="demo", Tags=TAGS)["FileSystemId"]
    record = a_record()
    storage = ExistingStorage(id=efs_id, source=f"{efs_id}:/", groups={})
    cluster = record.resolved.cluster.model_copy(update={"name": "train"})
    resolved = record.resolved.model_copy(update={"existing_storage": storage, "cluster": cluster})
    ClusterStore(region).write(record.model_copy(update={"name": "train", "resolved": resolved}))
    assert f"  lost: EFS file system {efs_id}, 0 KiB of data; cluster train mounts it" in lines(
        find_losses("demo", region)
    )


@pytest.mark.parametrize(
    ("is_block", "text"),
    [
        (True, "capacity block cr-1, which is paid to its end"),
        (False, "capacity reservation cr-1, which costs as much as its instances"),
    ],
)
def test_what_the_cluster_did_not_create_stays(region: Target, is_block: bool, text: str) -> None:
    record = a_record()
    network = ExistingNetwork(vpc="vpc-1", subnets={})
    reservation = Reservation(id="cr-1", is_block=is_block, starts=datetime.now(UTC))
    resolved = record.resolved.model_copy(
        update={"existing_network": network, "reservation": reservation}
    )
    ClusterStore(region).write(record.model_copy(update={"id": "", "resolved": resolved}))
    assert lines(find_losses("demo", region))[-3:] == [
        f"  stays: {text}",
        "  stays: network vpc-1",
        STAYS,
    ]


def test_a_cluster_that_does_not_exist_loses_nothing(region: Target) -> None:
    assert find_losses("third", region) is None
