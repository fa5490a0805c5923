"""What is asked about storage before anything is made."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.cluster import Cluster
from config.target import Target
from infra.user_data import FILE_SYSTEM
from provision.preflight import resolve
from tests.infra.region import CREDENTIALS, child


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with child("lab.api") as (url, _):
        yield Target(
            name="test",
            region="us-east-1",
            state=tmp_path / "gpuctl",
            endpoint=url,
            environment=CREDENTIALS,
            caller_address="198.18.255.1",
        )


def cluster(**changes: Any) -> Cluster:
    fields = {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge"}
    return Cluster.model_validate({**fields, "storage": {"shared": {"type": "efs"}}, **changes})


def test_what_the_type_has_and_the_file_asks_is_in_the_user_data(target: Target) -> None:
    found = resolve(cluster(), target)
    assert found.instance_type.local_disks == 8
    assert f"gpuctl_shared={FILE_SYSTEM}\n" in found.user_data
    assert "gpuctl_scratch=/scratch\n" in found.user_data
    without = resolve(cluster(instance_type="c6i.large", storage={}), target)
    assert without.instance_type.local_disks == 0
    assert "gpuctl_scratch" not in without.user_data
    assert FILE_SYSTEM not in without.user_data
