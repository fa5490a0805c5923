"""What is asked about storage before anything is made."""

from typing import Any

from config.cluster.cluster_file import Cluster
from config.target import Target
from infra.program.user_data import FILE_SYSTEM
from provision.preflight.preflight import resolve
from provision.state.store import ClusterStore


def cluster(**changes: Any) -> Cluster:
    fields = {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge"}
    return Cluster.model_validate({**fields, "storage": {"shared": {"type": "efs"}}, **changes})


def test_what_the_type_has_and_the_file_asks_is_in_the_user_data(target: Target) -> None:
    found = resolve(cluster(), ClusterStore(target))
    assert found.instance_type.local_disks == 8
    assert f"gpuctl_shared={FILE_SYSTEM}\n" in found.user_data
    assert "gpuctl_scratch=/scratch\n" in found.user_data
    without = resolve(cluster(instance_type="c6i.large", storage={}), ClusterStore(target))
    assert without.instance_type.local_disks == 0
    assert "gpuctl_scratch" not in without.user_data
    assert FILE_SYSTEM not in without.user_data
