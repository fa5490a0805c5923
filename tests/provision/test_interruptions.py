"""What AWS is about to take back is told by `status`, from EC2 alone."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from config.target import Target
from lab import fault_table
from provision.aws.clients import client
from provision.aws.instances import notices
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.state.store import ClusterStore
from provision.status import clusters
from tests.aws_calls import Answer, ApiCall
from tests.infra.region import CREDENTIALS, Worlds
from tests.provision.test_record import a_record
from tests.provision.test_sweep import tagged

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

ZONE = "us-east-1a"


def test_status_tells_what_aws_takes_back(
    tmp_path: Path, worlds: Worlds, answer_calls: Callable[[Answer], None]
) -> None:
    def refuse(call: ApiCall) -> Any:
        if call.operation == "DescribeSpotInstanceRequests":
            raise ClientError({"Error": {"Code": "UnauthorizedOperation"}}, call.operation)
        return call.ask()

    faults = tmp_path / "faults.json"
    with worlds.api(tmp_path) as (url, _):
        there = Target("test", "us-east-1", tmp_path, endpoint=url, environment=CREDENTIALS)
        ec2 = client(there, "ec2")
        ids = spot_nodes(there, ec2)
        launched = ec2.describe_instances(InstanceIds=ids)["Reservations"][0]["Instances"][0]
        # The record is older than the launch, whose time EC2 gives in whole seconds.
        created = launched["LaunchTime"] + timedelta(seconds=0.9)
        ClusterStore(there).write(a_record().now("ready").model_copy(update={"created": created}))
        assert clusters(ClusterStore(there))[0].problems == ()

        told = datetime.now(UTC).replace(microsecond=0)
        given = ["spot-interruption", ids[1], "3600", told.isoformat()]
        fault_table.write(faults, {given[0]: given[1:]})
        (status,) = clusters(ClusterStore(there))
        at = told + timedelta(seconds=3600)
        assert [node.interrupted_at for node in status.nodes] == [None, at.isoformat()]
        assert status.problems == (
            f"AWS takes node1's spot instance back at {at:%H:%M:%S} UTC; save your work on it, then"
            " `gpuctl up` replaces it",
        )

        fault_table.write(faults, {given[0]: [ids[1], "0", told.isoformat()]})
        ec2.get_waiter("instance_terminated").wait(
            InstanceIds=[ids[1]], WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )
        (status,) = clusters(ClusterStore(there))
        assert [node.interrupted_at for node in status.nodes] == [None, None]
        assert status.problems == (
            "node1 is terminated: AWS took its spot instance back"
            " (Server.SpotInstanceTermination); `gpuctl up` replaces it",
        )

        answer_calls(refuse)
        assert notices(ec2) is None
        (status,) = clusters(ClusterStore(there))
        assert status.problems[-1] == (
            "gpuctl may not read AWS's notices to spot instances;"
            " allow ec2:DescribeSpotInstanceRequests"
        )


def spot_nodes(there: Target, ec2: "EC2Client") -> list[str]:
    """Launch two spot nodes of cluster `demo`; return their ids."""
    vpc = ec2.create_vpc(CidrBlock="10.213.0.0/16")["Vpc"]["VpcId"]
    made = ec2.create_subnet(VpcId=vpc, CidrBlock="10.213.0.0/24", AvailabilityZone=ZONE)
    subnet = made["Subnet"]["SubnetId"]
    ami = image_id(client(there, "ssm"), BASTION_IMAGE)
    return [
        ec2.run_instances(
            ImageId=ami, InstanceType="p4d.24xlarge", MinCount=1, MaxCount=1, SubnetId=subnet,
            InstanceMarketOptions={"MarketType": "spot"},
            TagSpecifications=tagged("instance", "demo", f"demo-node{rank}"),
        )["Instances"][0]["InstanceId"]
        for rank in (0, 1)
    ]  # fmt: skip
