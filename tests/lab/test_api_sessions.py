"""Session Manager in the lab: who is online, and what StartSession answers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from config.catalogue.iam_actions import POLICY as NODES_POLICY
from tests.lab.world import World, refused, world

POLICY = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
SSH: Any = {"DocumentName": "AWS-StartSSHSession", "Parameters": {"portNumber": ["22"]}}


@pytest.fixture
def here() -> Iterator[World]:
    """A region in which EC2 knows a new instance profile at once."""
    with world() as made:
        yield made


def profile(here: World, name: str, *policies: str) -> Any:
    """An instance profile whose role has these policies, as a launch names it."""
    iam = here.client("iam")
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": []}))
    for policy in policies:
        iam.attach_role_policy(RoleName=name, PolicyArn=policy)
    iam.create_instance_profile(InstanceProfileName=name)
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    return {"IamInstanceProfile": {"Name": name}}


def online(here: World) -> list[str]:
    told = here.client("ssm").describe_instance_information()["InstanceInformationList"]
    return sorted(one["InstanceId"] for one in told if one["PingStatus"] == "Online")


def test_an_instance_whose_role_may_is_online_and_reached(here: World) -> None:
    (may,) = here.run(**profile(here, "may", POLICY))
    (may_not,) = here.run(**profile(here, "may-not"))
    own = profile(here, "own")
    here.client("iam").put_role_policy(
        RoleName="own", PolicyName="p", PolicyDocument=json.dumps(NODES_POLICY)
    )
    (may_too,) = here.run(**own)
    (has_none,) = here.run()
    assert online(here) == sorted([may, may_too])
    told = here.client("ssm").start_session(Target=may, **SSH)
    address = here.instance(may)["PrivateIpAddress"]
    assert told["StreamUrl"] == f"lab://{address}:22/{told['SessionId']}"
    assert len(told["TokenValue"]) > 20
    for instance in (may_not, has_none, "i-0123456789abcdef0"):
        with refused("TargetNotConnected", f"{instance} is not connected."):
            here.client("ssm").start_session(Target=instance, **SSH)

    here.ec2.terminate_instances(InstanceIds=[may])
    assert online(here) == [may_too]
    with refused("TargetNotConnected", f"{may} is not connected."):
        here.client("ssm").start_session(Target=may, **SSH)


def test_a_profile_that_does_not_exist_is_refused_at_the_launch(here: World) -> None:
    with refused(
        "InvalidParameterValue",
        "Value (nobody) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance"
        " Profile name",
    ):
        here.run(IamInstanceProfile={"Name": "nobody"})


def test_a_profile_made_just_now_is_refused_as_one_that_does_not_exist() -> None:
    with (
        world(profile_delay_s=600) as here,
        refused(
            "InvalidParameterValue",
            "Value (new) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance"
            " Profile name",
        ),
    ):
        here.run(**profile(here, "new"))


def test_no_other_document_and_no_other_policy_is_known(here: World) -> None:
    (may,) = here.run(**profile(here, "may", POLICY))
    with pytest.raises(ClientError, match="InvalidDocument"):
        here.client("ssm").start_session(Target=may, DocumentName="AWS-StartInteractiveCommand")
    with pytest.raises(ClientError, match="NoSuchEntity"):
        profile(here, "other", "arn:aws:iam::aws:policy/AdministratorAccess")
