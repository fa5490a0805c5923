"""The lab's IAM: a policy decides as AWS does, and refusals have AWS's words."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from config.errors import InputError
from config.target import Target
from lab import fault_kinds, fault_table
from lab.authorization.policy import read_policy
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.permissions.policy import policy
from tests.infra.region import CREDENTIALS, Worlds, client

OURS = {"StringLike": {"aws:ResourceTag/gpuctl:cluster": "*"}}
TAG = {"Key": "gpuctl:cluster", "Value": "demo"}


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def allow(action: Any, resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


# A decision


def test_nothing_is_allowed_by_itself_and_a_deny_overrides() -> None:
    rules = read_policy(
        document(
            allow("ec2:Describe*"),
            allow(["ec2:RunInstances"], "arn:*:ec2:*:*:instance/*"),
            {"Effect": "Deny", "Action": "ec2:DescribeVpcs", "Resource": "*"},
        )
    )
    assert rules.decide("ec2:DescribeSubnets", "*", {}) == "allowed"
    assert rules.decide("EC2:describesubnets", "*", {}) == "allowed"
    assert rules.decide("ec2:DescribeVpcs", "*", {}) == "explicitDeny"
    assert rules.decide("ec2:RunInstances", "arn:aws:ec2:r:1:instance/*", {}) == "allowed"
    assert rules.decide("ec2:RunInstances", "arn:aws:ec2:r:1:subnet/s", {}) == "implicitDeny"
    assert rules.decide("ec2:RunInstances", "*", {}) == "implicitDeny"


@pytest.mark.parametrize(
    ("condition", "context", "holds"),
    [
        ({"StringEquals": {"k": "a"}}, {"k": "a"}, True),
        ({"StringEquals": {"k": ["a", "b"]}}, {"K": "b"}, True),
        ({"StringEquals": {"k": "a*"}}, {"k": "ab"}, False),
        ({"StringEquals": {"k": "a"}}, {}, False),
        ({"StringLike": {"k": "a?c*"}}, {"k": "abcd"}, True),
        ({"StringLike": {"k": "*"}}, {}, False),
        ({"Null": {"k": "true"}}, {}, True),
        ({"Null": {"k": "false"}}, {}, False),
        ({"Null": {"k": "false"}}, {"k": ""}, True),
        ({"StringEquals": {"k": "a"}, "Null": {"j": "false"}}, {"k": "a"}, False),
    ],
)
def test_a_condition(condition: Any, context: dict[str, str], *, holds: bool) -> None:
    rules = read_policy(document(allow("a:b", Condition=condition)))
    assert (rules.decide("a:b", "*", context) == "allowed") is holds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("{}", "'Statement'"),
        (document(allow("a:b", NotAction="c:d")), "statements with NotAction are not supported"),
        (document(allow("a:b", Condition={"Bool": {"k": "true"}})),
         "the operator Bool is not supported"),
        (document({"Effect": "Maybe", "Action": "a:b", "Resource": "*"}), "Effect is 'Maybe'"),
    ],
)  # fmt: skip
def test_what_the_lab_cannot_enforce_is_refused_when_it_is_set(
    text: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "policy.json").write_text(text)
    with pytest.raises(InputError) as caught:
        fault_kinds.parse("policy", (str(tmp_path / "policy.json"),))
    assert str(caught.value) == (
        f"this is no IAM policy that the lab can enforce: {why}; `gpuctl iam-policy` prints one"
    )


def test_policy_variables_have_the_values_of_the_request() -> None:
    rules = read_policy(
        document(
            allow("ssm:ResumeSession", Condition={"StringLike": {"owner": "${aws:userid}"}}),
            allow("ssm:TerminateSession", "arn:aws:ssm:*:*:session/${aws:username}-*"),
        )
    )
    mine = {"aws:userid": "AIDA1", "aws:username": "ann", "owner": "AIDA1"}
    theirs = {**mine, "owner": "AIDA2"}
    assert rules.decide("ssm:ResumeSession", "*", mine) == "allowed"
    assert rules.decide("ssm:ResumeSession", "*", theirs) == "implicitDeny"
    session = "arn:aws:ssm:us-east-1:1:session/{}-0123"
    assert rules.decide("ssm:TerminateSession", session.format("ann"), mine) == "allowed"
    assert rules.decide("ssm:TerminateSession", session.format("bob"), mine) == "implicitDeny"
    # Without the key the variable matches nothing, not even itself.
    assert rules.decide("ssm:ResumeSession", "*", {"owner": "${aws:userid}"}) == "implicitDeny"


def test_a_policy_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        fault_kinds.parse("policy", (str(tmp_path / "none.json"),))
    assert str(caught.value) == (
        f"{tmp_path}/none.json cannot be read: No such file or directory; name a file"
    )


# The API


class Place:
    """A region whose credentials a test limits. `admin` is another person's client."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self.target = Target("test", "us-east-1", folder, endpoint=url, environment=CREDENTIALS)
        self.admin = client(self.target)

    def client(self, service: str) -> Any:
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.target.endpoint,
            region_name="us-east-1",
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def limit(self, *statements: dict[str, Any]) -> None:
        file = self.folder / "policy.json"
        file.write_text(document(*statements))
        given = fault_kinds.parse("policy", (str(file),))
        fault_table.write(self.folder / "faults.json", {"policy": given})


@pytest.fixture
def place(tmp_path: Path, worlds: Worlds) -> Iterator[Place]:
    with worlds.api(tmp_path) as (url, _):
        yield Place(url, tmp_path)


def refusal(ask: Any, **given: Any) -> tuple[str, str]:
    """The code and the end of the text with which AWS refuses the request."""
    with pytest.raises(ClientError) as caught:
        ask(**given)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"].partition("perform: ")[2] or error["Message"]


def because(action: str, resource: str) -> str:
    why = f"because no identity-based policy allows the {action} action"
    return f"{action} on resource: {resource} {why}"


def test_only_resources_with_the_tag_are_changed(place: Place) -> None:
    ec2, admin = place.client("ec2"), place.admin
    tagged: Any = [{"ResourceType": "vpc", "Tags": [TAG]}]
    ours = admin.create_vpc(CidrBlock="10.1.0.0/16", TagSpecifications=tagged)["Vpc"]["VpcId"]
    theirs = admin.create_vpc(CidrBlock="10.2.0.0/16")["Vpc"]["VpcId"]
    place.limit(allow(["ec2:DeleteVpc", "ec2:CreateTags"], Condition=OURS))
    arn = f"arn:aws:ec2:us-east-1:123456789012:vpc/{theirs}"
    denied = ("UnauthorizedOperation", because("ec2:DeleteVpc", arn))
    assert refusal(ec2.delete_vpc, VpcId=theirs) == denied
    # Nor can they be given the tag.
    denied = ("UnauthorizedOperation", because("ec2:CreateTags", arn))
    assert refusal(ec2.create_tags, Resources=[theirs], Tags=[TAG]) == denied
    assert refusal(ec2.create_tags, Resources=[ours, theirs], Tags=[TAG]) == denied
    assert refusal(ec2.delete_vpc, VpcId="vpc-00000000000000000")[0] == "InvalidVpcID.NotFound"
    ec2.delete_vpc(VpcId=ours)
    assert [vpc["VpcId"] for vpc in admin.describe_vpcs()["Vpcs"]] == [theirs]


def test_only_resources_with_the_tag_are_made(place: Place) -> None:
    ec2 = place.client("ec2")
    condition = {"StringLike": {"aws:RequestTag/gpuctl:cluster": "*"}}
    creating = {"Null": {"ec2:CreateAction": "false"}}
    place.limit(allow("ec2:CreateVpc", Condition=condition))
    arn = "arn:aws:ec2:us-east-1:123456789012:vpc/*"
    assert refusal(ec2.create_vpc, CidrBlock="10.1.0.0/16") == (
        "UnauthorizedOperation", because("ec2:CreateVpc", arn)
    )  # fmt: skip
    tagged = [{"ResourceType": "vpc", "Tags": [TAG]}]
    request = {"CidrBlock": "10.1.0.0/16", "TagSpecifications": tagged}
    assert refusal(ec2.create_vpc, **request) == (
        "UnauthorizedOperation", because("ec2:CreateTags", arn)
    )  # fmt: skip
    place.limit(
        allow("ec2:CreateVpc", Condition=condition), allow("ec2:CreateTags", Condition=creating)
    )
    assert refusal(ec2.create_vpc, DryRun=True, **request)[0] == "DryRunOperation"
    made = ec2.create_vpc(**request)["Vpc"]["VpcId"]
    assert refusal(ec2.create_tags, Resources=[made], Tags=[TAG])[0] == "UnauthorizedOperation"


def test_each_service_refuses_in_its_own_words(place: Place) -> None:
    place.limit(allow("ec2:DescribeVpcs"))
    user = "User: arn:aws:sts::123456789012:user/moto is not authorized to"
    assert place.client("sts").get_caller_identity()["Account"] == "123456789012"
    assert refusal(place.client("iam").list_roles) == (
        "AccessDenied",
        because("iam:ListRoles", "*"),
    )
    assert refusal(place.client("pricing").get_products, ServiceCode="AmazonEC2") == (
        "AccessDeniedException", because("pricing:GetProducts", "*")
    )  # fmt: skip
    assert refusal(place.client("efs").describe_file_systems) == (
        "AccessDeniedException", because("elasticfilesystem:DescribeFileSystems", "*")
    )  # fmt: skip
    with pytest.raises(ClientError) as caught:
        place.client("ec2").describe_subnets()
    assert caught.value.response["Error"]["Message"] == (
        f"You are not authorized to perform this operation. {user} perform: "
        + because("ec2:DescribeSubnets", "*")
    )


def test_a_session_is_ended_by_the_user_who_started_it_alone(place: Place) -> None:
    ssm = place.client("ssm")
    place.limit(*policy(["ssm:StartSession"])["Statement"])
    session = "moto-0123456789abcdef01"
    assert ssm.terminate_session(SessionId=session)["SessionId"] == session
    theirs = "administrator-0123456789abcdef01"
    arn = f"arn:aws:ssm:us-east-1:123456789012:session/{theirs}"
    assert refusal(ssm.terminate_session, SessionId=theirs) == (
        "AccessDeniedException", because("ssm:TerminateSession", arn),
    )  # fmt: skip


def test_a_spot_request_is_cancelled_if_it_has_the_tag(place: Place) -> None:
    ours, theirs = spot_requests(place)
    place.limit(*policy(["ec2:CancelSpotInstanceRequests"])["Statement"])
    ec2 = place.client("ec2")
    ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[ours])
    arn = f"arn:aws:ec2:us-east-1:123456789012:spot-instances-request/{theirs}"
    assert refusal(ec2.cancel_spot_instance_requests, SpotInstanceRequestIds=[theirs]) == (
        "UnauthorizedOperation", because("ec2:CancelSpotInstanceRequests", arn),
    )  # fmt: skip


def spot_requests(place: Place) -> list[str]:
    """The requests of two spot instances; the first one has the tag of a cluster."""
    ec2: Any = place.admin
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    made = ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/24", AvailabilityZone="us-east-1a")
    subnet = made["Subnet"]["SubnetId"]
    launch = {
        "ImageId": image_id(place.client("ssm"), BASTION_IMAGE),
        "InstanceType": "t3.micro",
        "SubnetId": subnet,
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceMarketOptions": {"MarketType": "spot"},
    }
    tagged = [{"ResourceType": "spot-instances-request", "Tags": [TAG]}]
    answers = (ec2.run_instances(**launch, **more) for more in ({"TagSpecifications": tagged}, {}))
    return [answer["Instances"][0]["SpotInstanceRequestId"] for answer in answers]
