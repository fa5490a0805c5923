"""What GuardDuty puts into a cluster's VPC is removed with it, and nobody else's."""

from pathlib import Path
from typing import Any

import pytest

from config.errors import CloudError
from config.progress import Progress
from config.target import Target
from lab import fault_table
from provision.aws.clients import client
from provision.aws.guardduty import delete_endpoints
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.aws.resources import find_all
from provision.removal.sweep import sweep
from tests.infra.region import CREDENTIALS, Worlds
from tests.provision.test_sweep import make_cluster


def test_its_endpoint_and_group_are_removed_before_the_vpc(tmp_path: Path, worlds: Worlds) -> None:
    faults = tmp_path / "faults.json"
    with worlds.api(tmp_path) as (url, _):
        there = Target("test", "us-east-1", tmp_path, endpoint=url, environment=CREDENTIALS)
        ec2 = client(there, "ec2")
        fault_table.write(faults, {"vpc-endpoint": ["by", "guardduty"]})
        ami = image_id(client(there, "ssm"), BASTION_IMAGE)
        for name in ("demo", "other"):
            make_cluster(ec2, ami, name)
        both = ("GuardDuty endpoint", "GuardDuty security group")
        assert [one.kind for one in find_all(there, None, both)] == [*both[:1] * 2, *both[1:] * 2]
        told: list[Progress] = []
        removed = sweep(there, "demo", "", told.append)
        kinds = [text.rpartition(" ")[0] for text in removed]
        order = [*both, "security group", "subnet", "VPC"]
        assert [kind for kind in dict.fromkeys(kinds) if kind in order] == order
        assert find_all(there, "demo") == []
        assert [one.cluster for one in find_all(there, None, both)] == ["other"] * 2


class Refuses:
    """EC2 of somebody who may not delete endpoints: the error is in an answer that succeeds."""

    def delete_vpc_endpoints(self, **_: Any) -> Any:
        error = {"Code": "UnauthorizedOperation", "Message": "You are not authorized."}
        return {"Unsuccessful": [{"ResourceId": "vpce-1", "Error": error}]}


def test_a_refusal_says_what_stands_in_the_way() -> None:
    with pytest.raises(CloudError) as caught:
        delete_endpoints(Refuses(), ["vpce-1"])
    assert str(caught.value) == (
        "AWS refused to delete GuardDuty's endpoint vpce-1, which keeps the cluster's VPC:"
        " UnauthorizedOperation: You are not authorized.; delete the endpoint, or let an"
        " administrator allow ec2:DeleteVpcEndpoints; then repeat `gpuctl down`"
    )
