"""Instances: what is asked for is shown, and states follow the machine."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.api.machines import NoMachines
from lab.machines.machine import MachineSpec
from tests.lab.world import World, refused, world

pytestmark = pytest.mark.slow


class Recorded(NoMachines):
    """Machines that boot nothing, and remember with what they would have."""

    def __init__(self) -> None:
        super().__init__()
        self.specs: dict[str, MachineSpec] = {}
        self.removed: list[str] = []

    def launch(self, spec: MachineSpec, lifecycle: object) -> None:
        self.specs[spec.instance_id] = spec
        super().launch(spec, lifecycle)  # type: ignore[arg-type]

    def remove(self, instance_id: str) -> None:
        self.removed.append(instance_id)

    def console(self, instance_id: str) -> str:
        return f"console of {instance_id}\n"


@pytest.fixture
def machines() -> Recorded:
    return Recorded()


@pytest.fixture
def region(machines: Recorded, tmp_path: Path) -> Iterator[World]:
    with world(machines, tmp_path / "capacity.json") as made:
        yield made


def test_a_launch_template_is_kept_and_shown(region: World) -> None:
    region.ec2.create_placement_group(GroupName="demo")
    tags = [{"Key": "gpuctl:cluster", "Value": "demo"}]
    template = region.template(
        Placement={"GroupName": "demo"},
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        EbsOptimized=True,
        InstanceInitiatedShutdownBehavior="terminate",
        BlockDeviceMappings=[
            {
                "DeviceName": "/dev/sda1",
                "Ebs": {"VolumeSize": 200, "VolumeType": "gp3", "Encrypted": True},
            }
        ],
        TagSpecifications=[
            {"ResourceType": kind, "Tags": tags}
            for kind in ("instance", "volume", "network-interface")
        ],
    )
    (instance_id,) = region.run(
        LaunchTemplate={"LaunchTemplateId": template},
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "node0"}]}
        ],
    )
    instance = region.instance(instance_id)
    assert instance["Placement"]["GroupName"] == "demo"
    assert instance["Placement"]["AvailabilityZone"] == "us-east-1a"
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["MetadataOptions"]["HttpPutResponseHopLimit"] == 2
    assert instance["EbsOptimized"] is True
    assert {tag["Key"]: tag["Value"] for tag in instance["Tags"]} == {
        "Name": "node0",
        "gpuctl:cluster": "demo",
        "aws:ec2launchtemplate:id": template,
        "aws:ec2launchtemplate:version": "1",
    }
    behaviour = region.ec2.describe_instance_attribute(
        InstanceId=instance_id, Attribute="instanceInitiatedShutdownBehavior"
    )
    assert behaviour["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    filters = [{"Name": "tag:gpuctl:cluster", "Values": ["demo"]}]
    (volume,) = region.ec2.describe_volumes(Filters=filters)["Volumes"]
    assert (volume["Size"], volume["VolumeType"], volume["Encrypted"]) == (200, "gp3", True)
    tagged = region.ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
    assert len(tagged) == 5


def test_a_request_overrides_its_template(region: World) -> None:
    template = region.template()
    (instance_id,) = region.run(
        LaunchTemplate={"LaunchTemplateId": template},
        UserData="#!/bin/sh\n",
        EbsOptimized=True,
    )
    assert region.instance(instance_id)["EbsOptimized"] is True
    shown = region.ec2.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
    assert base64.b64decode(shown["UserData"]["Value"]) == b"#!/bin/sh\n"


def test_a_machine_boots_with_what_the_api_shows(region: World, machines: Recorded) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJtQ3rvOaB2m6XQ0UNyd0YdJqYpQw0QCpzNBy0Wn0Vk3 demo"
    region.ec2.import_key_pair(KeyName="demo", PublicKeyMaterial=key.encode())
    (instance_id,) = region.run(UserData="#cloud-config\n", KeyName="demo")
    assert machines.specs[instance_id] == MachineSpec(
        instance_id=instance_id,
        hostname="ip-10-213-0-4",
        flavour="dlami",
        private_ip="10.213.0.4",
        prefix_length=20,
        gateway="10.213.0.1",
        public_ip=None,
        user_data=b"#cloud-config\n",
        authorized_keys=(key,),
        instance_type="p4d.24xlarge",
        efa_interfaces=4,
        local_disks=8,
    )
    assert region.instance(instance_id)["PrivateIpAddress"] == "10.213.0.4"


def test_terminate_leaves_no_interface_and_no_volume(region: World, machines: Recorded) -> None:
    ids = region.run(2)
    answer = region.ec2.terminate_instances(InstanceIds=ids)["TerminatingInstances"]
    assert {c["CurrentState"]["Name"] for c in answer} == {"shutting-down"}
    assert [region.state(i) for i in ids] == ["terminated", "terminated"]
    assert region.ec2.describe_network_interfaces()["NetworkInterfaces"] == []
    assert region.ec2.describe_volumes()["Volumes"] == []
    assert machines.removed == ids
    gone = region.instance(ids[0])
    assert gone["NetworkInterfaces"] == []
    assert "PrivateIpAddress" not in gone
    again = region.ec2.terminate_instances(InstanceIds=ids)["TerminatingInstances"]
    assert {c["CurrentState"]["Name"] for c in again} == {"terminated"}


@pytest.mark.parametrize(("behaviour", "end"), [("terminate", "terminated"), ("stop", "stopped")])
def test_a_machine_that_powers_itself_off(
    region: World, machines: Recorded, behaviour: str, end: str
) -> None:
    (instance_id,) = region.run(InstanceInitiatedShutdownBehavior=behaviour)
    machines.power_off(instance_id)  # nobody asked the API
    instance = region.instance(instance_id)
    assert instance["State"]["Name"] == end
    assert instance["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    volumes = region.ec2.describe_volumes()["Volumes"]
    assert len(volumes) == (1 if end == "stopped" else 0)
    assert machines.removed == ([instance_id] if end == "terminated" else [])


def test_stop_and_start(region: World) -> None:
    (instance_id,) = region.run()
    address = region.instance(instance_id)["PrivateIpAddress"]
    region.ec2.stop_instances(InstanceIds=[instance_id])
    assert region.state(instance_id) == "stopped"
    region.ec2.start_instances(InstanceIds=[instance_id])
    assert region.state(instance_id) == "running"
    assert region.instance(instance_id)["PrivateIpAddress"] == address


def test_a_client_token_launches_once(region: World) -> None:
    first = region.run(2, ClientToken="one")
    assert region.run(2, ClientToken="one") == first
    with refused(
        "IdempotentParameterMismatch",
        "Arguments on this idempotent request are inconsistent with arguments used in previous"
        " request(s).",
    ):
        region.run(3, ClientToken="one")
    assert len(region.ec2.describe_instances()["Reservations"]) == 1


def test_console_output_is_the_machines(region: World) -> None:
    (instance_id,) = region.run()
    answer = region.ec2.get_console_output(InstanceId=instance_id, Latest=True)
    assert answer["Output"] == f"console of {instance_id}\n"


def test_capacity_is_given_whole_or_not_at_all(region: World, tmp_path: Path) -> None:
    table = {"us-east-1a": {"p4d.24xlarge": 2}}
    (tmp_path / "capacity.json").write_text(json.dumps(table))
    text = (
        "We currently do not have sufficient p4d.24xlarge capacity in the Availability Zone you"
        " requested (us-east-1a). Our system will be working on provisioning additional capacity."
    )
    with refused("InsufficientInstanceCapacity", text, status=500):
        region.run(3)
    assert region.ec2.describe_instances()["Reservations"] == []
    some = region.run(1, MaxCount=5)
    assert len(some) == 2
    with refused("InsufficientInstanceCapacity", text, status=500):
        region.run()
    region.ec2.terminate_instances(InstanceIds=some[:1])
    assert len(region.run()) == 1


def test_a_zone_that_does_not_offer_the_type(region: World) -> None:
    interface = region.interface(0, 0, "interface")
    with refused(
        "Unsupported",
        "Your requested instance type (p6-b200.48xlarge) is not supported in your requested"
        " Availability Zone (us-east-1a). Please retry your request by not specifying an"
        f" Availability Zone or choosing {_offering(region, 'p6-b200.48xlarge')}.",
    ):
        region.run(InstanceType="p6-b200.48xlarge", NetworkInterfaces=[interface])


def _offering(region: World, kind: str) -> str:
    answer = region.ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [kind]}]
    )
    return ", ".join(sorted(o["Location"] for o in answer["InstanceTypeOfferings"]))


@pytest.mark.parametrize(
    ("parameters", "code", "text"),
    [
        (
            {"Placement": {"GroupName": "nowhere"}},
            "InvalidPlacementGroup.Unknown",
            "The Placement Group 'nowhere' is unknown.",
        ),
        (
            {"ImageId": "ami-0123456789abcdef0"},
            "InvalidAMIID.NotFound",
            "The image id '[ami-0123456789abcdef0]' does not exist",
        ),
        ({"KeyName": "nobody"}, "InvalidKeyPair.NotFound", "The key pair 'nobody' does not exist"),
        (
            {"UserData": "x" * 16385},
            "InvalidParameterValue",
            "User data is limited to 16384 bytes",
        ),
        (
            {"InstanceType": "p9.metal"},
            "InvalidParameterValue",
            "Invalid value 'p9.metal' for InstanceType.",
        ),
    ],
)
def test_what_does_not_exist_is_refused(
    region: World, parameters: dict[str, Any], code: str, text: str
) -> None:
    with refused(code, text):
        region.run(**parameters)
    assert region.ec2.describe_instances()["Reservations"] == []


def test_shutdown_behaviour_can_be_changed_and_groups_stay(region: World) -> None:
    (instance_id,) = region.run()
    region.ec2.modify_instance_attribute(
        InstanceId=instance_id, InstanceInitiatedShutdownBehavior={"Value": "terminate"}
    )
    shown = region.ec2.describe_instance_attribute(
        InstanceId=instance_id, Attribute="instanceInitiatedShutdownBehavior"
    )
    assert shown["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    assert [g["GroupId"] for g in region.instance(instance_id)["SecurityGroups"]] == [region.group]


def test_termination_protection_holds(region: World) -> None:
    (instance_id,) = region.run(DisableApiTermination=True)
    with refused(
        "OperationNotPermitted",
        f"The instance '{instance_id}' may not be terminated. Modify its 'disableApiTermination'"
        " instance attribute and try again.",
    ):
        region.ec2.terminate_instances(InstanceIds=[instance_id])
    assert region.state(instance_id) == "running"


def test_a_large_fleet_is_described_in_one_answer(region: World) -> None:
    ids = [
        i for _ in range(110) for i in region.run(InstanceType="t3.small", SubnetId=region.subnet)
    ]
    answer = region.ec2.describe_instances()
    assert [r["Instances"][0]["InstanceId"] for r in answer["Reservations"]] == ids
    assert "NextToken" not in answer
