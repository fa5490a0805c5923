"""Preflight asks a real API; everything that is wrong is told at once."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Interface
from config.errors import CloudError, GpuctlError, InputError
from config.target import Target
from provision.aws.clients import client
from provision.preflight.preflight import resolve
from provision.state import record
from provision.state.store import ClusterStore

pytestmark = pytest.mark.slow


def cluster(**changes: Any) -> Cluster:
    return Cluster.model_validate(
        {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge", **changes}
    )


def complaint(target: Target, **changes: Any) -> GpuctlError:
    with pytest.raises(GpuctlError) as caught:
        resolve(cluster(**changes), ClusterStore(target))
    return caught.value


def test_nothing_is_left_open(target: Target) -> None:
    found = resolve(cluster(tags={"team": "a"}), ClusterStore(target))
    assert (found.account, found.region, found.zone) == ("123456789012", "us-east-1", "us-east-1a")
    assert (found.instance_type.gpus, found.instance_type.gpu_model) == (8, "NVIDIA A100")
    assert found.instance_type.architecture == "x86_64"
    assert found.instance_type.price_usd_h == 21.957642
    assert found.interfaces == (
        Interface(card=0, device=0, type="interface"),
        Interface(card=0, device=1, type="efa-only"),
        Interface(card=1, device=0, type="efa-only"),
        Interface(card=2, device=0, type="efa-only"),
        Interface(card=3, device=0, type="efa-only"),
    )
    assert found.image.name.startswith(
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04)"
    )
    assert found.image.root_device == "/dev/sda1"
    assert found.bastion_image.name.startswith("debian-12")
    assert found.ssh_from == "198.18.255.1/32"
    assert found.tags == {
        "team": "a",
        "gpuctl:cluster": "demo",
        "gpuctl:id": found.id,
        "gpuctl:owner": "arn:aws:sts::123456789012:user/moto",
    }
    assert re.fullmatch("[0-9a-f]{8}", found.id)
    assert found.public_key in found.user_data
    assert found.public_key in found.bastion_user_data
    assert found.nodes_public_key in found.user_data
    assert found.nodes_public_key not in found.bastion_user_data
    key = target.clusters / "demo" / "id_ed25519"
    assert key.stat().st_mode & 0o777 == 0o600


def test_a_second_resolution_is_the_same(target: Target) -> None:
    """But for the id: of a cluster that was only planned nothing is remembered."""
    first, second = (resolve(cluster(), ClusterStore(target)) for _ in range(2))
    assert first.id != second.id
    assert first.model_copy(update={"tags": second.tags}) == second


def test_another_count_of_nodes_changes_no_node(target: Target) -> None:
    two, three = (
        resolve(cluster(), ClusterStore(target)),
        resolve(cluster(nodes=3), ClusterStore(target)),
    )
    assert two.user_data == three.user_data
    assert two.bastion_user_data == three.bastion_user_data


def test_all_complaints_come_at_once_and_nothing_is_made(target: Target) -> None:
    error = complaint(
        target,
        nodes=300,
        instance_type="p4d.24xlarg",
        image="ami-0123456789abcdef0",
        network={"cidr": "10.0.0.0/24"},
    )
    assert isinstance(error, InputError)
    assert str(error).splitlines() == [
        "instance type p4d.24xlarg does not exist in us-east-1;"
        " did you mean p4d.24xlarge or p4de.24xlarge or p3dn.24xlarge?",
        "image ami-0123456789abcdef0 does not exist in us-east-1, or this account may not use"
        " it; name another one, or a published image such as dlami-ubuntu-24.04",
        "network.cidr: 10.0.0.0/24 has addresses for 123 nodes, 300 are asked for;"
        " use a larger range, /16 for the most nodes",
    ]
    assert not target.clusters.exists()


@pytest.mark.parametrize(
    ("variables", "refusal"),
    [
        (
            {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE"},
            "InvalidClientTokenId: The security token included in the request is invalid",
        ),
        (
            {"AWS_SECRET_ACCESS_KEY": "wrong"},
            "SignatureDoesNotMatch: The request signature we calculated does not match the"
            " signature you provided. Check your AWS Secret Access Key and signing method. Consult"
            " the service documentation for details",
        ),
    ],
)
def test_wrong_keys_are_one_line(target: Target, variables: dict[str, str], refusal: str) -> None:
    wrong = replace(target, environment={**target.environment, **variables})
    assert str(complaint(wrong)) == (
        f"AWS refused GetCallerIdentity: {refusal}; renew your credentials: `aws sso login`,"
        " `aws configure` or AWS_PROFILE"
    )


def test_zones_are_taken_in_the_file_s_order(target: Target) -> None:
    chosen = resolve(
        cluster(capacity={"zones": ("us-east-1e", "us-east-1c")}), ClusterStore(target)
    )
    assert chosen.zone == "us-east-1c"


def test_zones_that_do_not_offer_the_type_are_refused_with_those_that_do(target: Target) -> None:
    assert str(complaint(target, capacity={"zones": ("us-east-1e",)})) == (
        "capacity.zones: us-east-1e: none offers p4d.24xlarge (Unsupported);"
        " these do: us-east-1a, us-east-1b, us-east-1c, us-east-1d"
    )


def test_a_region_without_the_type_is_named(target: Target) -> None:
    elsewhere = replace(target, region="eu-north-1")
    assert str(complaint(elsewhere, instance_type="p6-b300.48xlarge")).startswith(
        ("no zone of eu-north-1 offers p6-b300.48xlarge;", "instance type p6-b300.48xlarge does")
    )


def test_a_root_smaller_than_the_image_is_refused(target: Target) -> None:
    assert complaint(target, storage={"root": {"gib": 50}}).message == (
        "storage.root.gib: 50 is less than the 75 GiB of image dlami-ubuntu-24.04"
    )


def test_an_image_of_another_architecture_is_refused(target: Target) -> None:
    error = complaint(target, instance_type="g5g.16xlarge")
    assert "image dlami-ubuntu-24.04 is for x86_64, g5g.16xlarge is arm64" in str(error)


def test_a_type_that_no_cluster_group_takes_is_refused(target: Target) -> None:
    small = {"instance_type": "t3.large", "image": "stock-debian-12"}
    assert str(complaint(target, **small)) == (
        "placement.strategy: t3.large runs in no cluster placement group"
        " (InvalidParameterCombination); set it to none, or choose another type"
    )
    assert resolve(
        cluster(**small, placement={"strategy": "none"}), ClusterStore(target)
    ).interfaces


def test_required_efa_is_refused_where_there_is_none(target: Target) -> None:
    error = complaint(target, instance_type="c5.large", network={"efa": "required"})
    assert error.message == "network.efa is required, but c5.large has no EFA"


def test_an_endpoint_without_a_caller_address_asks_for_ssh_from(target: Target) -> None:
    unknown = replace(target, caller_address=None)
    assert complaint(unknown).message == (
        "network.ssh_from: this endpoint does not report your address"
    )
    told = resolve(cluster(network={"ssh_from": "203.0.113.0/24"}), ClusterStore(unknown))
    assert told.ssh_from == "203.0.113.0/24"


def test_user_data_that_is_too_long_is_refused_before_anything(target: Target) -> None:
    import random

    noise = random.Random(1).randbytes(20_000).hex()
    assert complaint(target, setup={"commands": (f"echo {noise}",)}).message.startswith(
        "user data has "
    )


def test_what_every_request_meets_is_told_once(target: Target) -> None:
    nowhere = replace(target, endpoint="http://127.0.0.1:9")
    error = complaint(nowhere)
    assert isinstance(error, CloudError)
    assert error.code == "EndpointConnection"
    assert "\n" not in str(error)


def remember(target: Target, **changes: Any) -> None:
    resolved = resolve(cluster(**changes), ClusterStore(target))
    ClusterStore(target).write(record.new_record(resolved, datetime.now(UTC)))


def test_a_cluster_that_exists_keeps_zone_image_and_caller(target: Target) -> None:
    remember(target, capacity={"zones": ("us-east-1c",)})
    before = ClusterStore(target).record("demo")
    assert before is not None
    elsewhere = replace(target, caller_address="198.18.255.9")
    parameter = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04"
    newer = client(target, "ssm").get_parameter(Name=f"{parameter}/latest/ami-id")["Parameter"]
    assert newer["Value"] == before.resolved.image.id
    again = resolve(cluster(), ClusterStore(elsewhere))
    assert (again.zone, again.ssh_from) == ("us-east-1c", "198.18.255.1/32")
    assert again.image == before.resolved.image


def test_what_changed_in_the_file_is_resolved_anew(target: Target) -> None:
    remember(target)
    again = resolve(
        cluster(
            image="dlami-ubuntu-22.04",
            capacity={"zones": ("us-east-1b",)},
            network={"ssh_from": "203.0.113.7/32"},
        ),
        ClusterStore(target),
    )
    assert "Ubuntu 22.04" in again.image.name
    assert (again.zone, again.ssh_from) == ("us-east-1b", "203.0.113.7/32")


def test_a_cluster_of_another_region_is_not_taken_over(target: Target) -> None:
    remember(target)
    error = complaint(replace(target, region="us-west-2"))
    assert error.message == "cluster 'demo' is in us-east-1, not in us-west-2"


def test_addresses_are_counted_per_interface(target: Target) -> None:
    few = {"cidr": "10.9.0.0/24", "interfaces": "max-bandwidth"}
    assert complaint(target, nodes=40, network=few).message.startswith(
        "network.cidr: 10.9.0.0/24 has addresses for 30 nodes, 40 are asked for"
    )
    assert resolve(cluster(nodes=30, network=few), ClusterStore(target)).interfaces[
        -1
    ] == Interface(card=3, device=1, type="interface")


def test_a_way_in_stays_as_it_was_made(target: Target) -> None:
    made = resolve(cluster(), ClusterStore(target))
    ClusterStore(target).write(record.new_record(made, datetime.now(UTC)))
    assert complaint(target, network={"access": "elastic-ip"}).message == (
        "network.access: cluster 'demo' was created with bastion, and cannot change to elastic-ip"
    )


def test_private_addresses_of_isolated_vpcs_are_refused(target: Target) -> None:
    lab = replace(target, name="lab", vpcs_are_isolated=True)
    assert complaint(lab, network={"access": "private", "ssh_from": "10.0.0.0/16"}).message == (
        "network.access: private addresses of target lab cannot be reached from outside its VPCs"
    )
    aws = replace(target, provider_address="127.0.0.1:1")
    found = resolve(
        cluster(network={"access": "private", "ssh_from": "10.0.0.0/16"}), ClusterStore(aws)
    )
    assert found.ssh_from == "10.0.0.0/16"
