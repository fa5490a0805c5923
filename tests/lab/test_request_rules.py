"""A request that breaks a published rule of AWS is refused with AWS's code."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.core.utils import get_service_model

from lab.requests.refusals import Refused, refusal
from lab.requests.wire import Request
from tests.lab.world import World, refused, world

MOMENT = datetime(2026, 11, 23, tzinfo=UTC)
ONE = {"MinCount": 1, "MaxCount": 1}
TEMPLATE = {"LaunchTemplateName": "nodes"}
RESERVATION = {
    "InstanceType": "p4d.24xlarge",
    "InstancePlatform": "Linux/UNIX",
    "AvailabilityZone": "us-east-1a",
    "InstanceCount": 2,
}
GROUP = {"GroupName": "nodes", "Description": "nodes"}
VALUE, COMBINATION = "InvalidParameterValue", "InvalidParameterCombination"
GROUP_TEXT = r"[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]*"


def of(operation: str, parameters: dict[str, Any], service: str = "ec2") -> Refused | None:
    model = get_service_model(service).operation_model(operation)
    return refusal(Request(service, model, parameters))


def encoded(size: int) -> str:
    return base64.b64encode(b"x" * size).decode()


def tagged(*tags: tuple[str, str], kind: str = "instance") -> dict[str, Any]:
    listed = [{"Key": key, "Value": value} for key, value in tags]
    return {"TagSpecifications": [{"ResourceType": kind, "Tags": listed}]}


def disk(**ebs: Any) -> dict[str, Any]:
    return {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": ebs}]}


def spot(**options: str) -> dict[str, Any]:
    return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": options}}


ACCEPTED = [
    ("RunInstances", ONE | {"UserData": encoded(16384), "ClientToken": "x" * 64}),
    ("RunInstances", ONE | {"InstanceType": "p9.48xlarge"}),  # newer than botocore's model
    ("RunInstances", ONE | spot(
        SpotInstanceType="persistent", InstanceInterruptionBehavior="stop")),
    ("RunInstances", ONE | tagged(*((f"k{n}", "v" * 256) for n in range(50)))),
    ("CreateCapacityReservation", RESERVATION | {"EndDateType": "limited", "EndDate": MOMENT}),
    ("CreateCapacityReservation", RESERVATION | {
        "PlacementGroupArn": "arn:aws:ec2:us-east-1:123456789012:placement-group/gpuctl-demo"}),
    ("CreateSecurityGroup", {"GroupName": "a" * 255, "Description": "._-:/()#,@[]+=&;{}!$* a"}),
    ("CreateLaunchTemplate", {"LaunchTemplateName": "a-b", "LaunchTemplateData": disk(
        VolumeType="gp3", VolumeSize=65536, Iops=80000, Throughput=2000)}),
    ("DescribeInstances", {"Filters": [{"Name": "tag:gpuctl:cluster", "Values": ["demo"]},
                                       {"Name": "tag-key", "Values": ["x"] * 199}]}),
    ("DescribeVerifiedAccessGroups", {"Filters": [{"Name": "any", "Values": ["x"]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "parameters"), ACCEPTED)
def test_what_aws_accepts_is_accepted(operation: str, parameters: dict[str, Any]) -> None:
    assert of(operation, parameters) is None


REFUSED = [
    # the service model
    ("RunInstances", {"MinCount": 1}, "MissingParameter",
     "The request must contain the parameter MaxCount"),
    ("RunInstances", ONE | {"Placement": {"Colour": "red"}}, "UnknownParameter",
     "The parameter Placement.Colour is not recognized"),
    ("RunInstances", ONE | {"SecurityGroupIds": ["sg-1", 2]}, VALUE,
     "Value (2) for parameter SecurityGroupIds[1] is no string"),
    ("RunInstances", ONE | {"EbsOptimized": "yes"}, VALUE,
     "Value (yes) for parameter EbsOptimized is no boolean"),
    ("RunInstances", {"MinCount": True, "MaxCount": 1}, VALUE,
     "Value (True) for parameter MinCount is no integer"),
    ("RunInstances", ONE | {"UserData": ["secret"]}, VALUE,
     "Value (sensitive) for parameter UserData is no string"),
    ("RunInstances", ONE | {"InstanceInitiatedShutdownBehavior": "hibernate"}, VALUE,
     "Value (hibernate) for parameter InstanceInitiatedShutdownBehavior is invalid."
     " Allowed values: stop, terminate"),
    ("DescribeCapacityReservations", {"MaxResults": 1001}, VALUE,
     "Value (1001) for parameter MaxResults is invalid. Maximum: 1000"),
    ("DescribeSubnets", {"MaxResults": 4}, VALUE,
     "Value (4) for parameter MaxResults is invalid. Minimum: 5"),
    ("DescribeInstanceTypes", {"InstanceTypes": ["p4d.24xlarge"] * 101}, VALUE,
     "Value (101 items) for parameter InstanceTypes is invalid. Maximum: 100"),
    # EC2's rules for one value
    ("RunInstances", {"MinCount": 0, "MaxCount": 1}, VALUE,
     "Value (0) for parameter MinCount is invalid. Minimum: 1"),
    ("RunInstances", {"MinCount": 2, "MaxCount": 1}, VALUE,
     "Value (2) for parameter MinCount is invalid. It is more than MaxCount"),
    ("RunInstances", ONE | {"ClientToken": "x" * 65}, VALUE,
     f"Value ({'x' * 65}) for parameter ClientToken is invalid. It must have 0 to 64 characters"),
    ("RunInstances", ONE | {"MetadataOptions": {"HttpPutResponseHopLimit": 65}}, VALUE,
     "Value (65) for parameter MetadataOptions.HttpPutResponseHopLimit is invalid. Minimum: 1,"
     " maximum: 64"),
    ("RunInstances", ONE | disk(VolumeType="gp3", Iops=2999), VALUE,
     "Value (2999) for parameter BlockDeviceMappings.Ebs.Iops is invalid. Minimum: 3000,"
     " maximum: 80000"),
    ("CreateLaunchTemplate", TEMPLATE | {"LaunchTemplateData": disk(VolumeType="gp3",
                                                                    Throughput=2001)}, VALUE,
     "Value (2001) for parameter LaunchTemplateData.BlockDeviceMappings.Ebs.Throughput is invalid."
     " Minimum: 125, maximum: 2000"),
    ("CreateLaunchTemplate", {"LaunchTemplateName": "no", "LaunchTemplateData": {}}, VALUE,
     "Value (no) for parameter LaunchTemplateName is invalid. It must have 3 to 128 characters"),
    ("CreateLaunchTemplate", {"LaunchTemplateName": "a b", "LaunchTemplateData": {}}, VALUE,
     r"Value (a b) for parameter LaunchTemplateName is invalid. It must match"
     r" [a-zA-Z0-9()./\-_]*"),
    ("CreateSecurityGroup", GROUP | {"GroupName": "sg-nodes"}, VALUE,
     f"Value (sg-nodes) for parameter GroupName is invalid. It must match (?!sg-){GROUP_TEXT}"),
    ("CreateSecurityGroup", GROUP | {"Description": "it's"}, VALUE,
     f"Value (it's) for parameter Description is invalid. It must match {GROUP_TEXT}"),
    ("AuthorizeSecurityGroupIngress", {"IpPermissions": [{"IpRanges": [
        {"CidrIp": "0.0.0.0/0", "Description": "é"}]}]}, VALUE,
     f"Value (é) for parameter IpPermissions.IpRanges.Description is invalid. It must match"
     f" {GROUP_TEXT}"),
    ("CreatePlacementGroup", {"GroupName": "é"}, VALUE,
     r"Value (é) for parameter GroupName is invalid. It must match [\x00-\x7f]*"),
    ("CreateCapacityReservation", RESERVATION | {"InstanceCount": 1001}, VALUE,
     "Value (1001) for parameter InstanceCount is invalid. Minimum: 1, maximum: 1000"),
    ("TerminateInstances", {"InstanceIds": ["i-1"] * 1001}, VALUE,
     "InstanceIds may have 1000 entries, 1001 were given"),
    # tags
    ("RunInstances", ONE | tagged(("aws:x", "1")), "InvalidTagKey.Malformed",
     "Tag key 'aws:x' is not valid: it is empty, or begins with aws:"),
    ("RunInstances", ONE | tagged(*((f"k{n}", "") for n in range(51))), "TagLimitExceeded",
     "A resource has 50 tags at most, not 51"),
    ("RunInstances", ONE | tagged(("a", "1"), ("a", "2")), VALUE,
     "Duplicate tag key 'a' specified."),
    ("RunInstances", ONE | tagged(("k" * 129, "")), VALUE,
     f"Value ({'k' * 129}) for parameter Tags.Key is invalid. It must have at most 128 characters"),
    ("CreateTags", {"Resources": ["i-1"], "Tags": [{"Key": "a", "Value": "v" * 257}]}, VALUE,
     f"Value ({'v' * 257}) for parameter Tags.Value is invalid. It must have at most 256"
     " characters"),
    ("CreateLaunchTemplate", TEMPLATE | {"LaunchTemplateData": tagged(("aws:a", "1"))},
     "InvalidTagKey.Malformed", "Tag key 'aws:a' is not valid: it is empty, or begins with aws:"),
    ("CreateLaunchTemplate", TEMPLATE | {"LaunchTemplateData": tagged(("a", "1"), kind="subnet")},
     VALUE, "'subnet' is not a valid taggable resource type for this operation."),
    # filters and pages
    ("DescribeCapacityReservations", {"Filters": [{"Name": "tag-key", "Values": ["x"]}]}, VALUE,
     "The filter 'tag-key' is invalid"),
    ("DescribeInstanceTypes", {"Filters": [{"Name": "tag:a", "Values": ["x"]}]}, VALUE,
     "The filter 'tag:a' is invalid"),
    ("DescribeNatGateways", {"Filter": [{"Name": "colour", "Values": ["x"]}]}, VALUE,
     "The filter 'colour' is invalid"),
    ("DescribeInstances", {"Filters": [{"Name": "vpc-id", "Values": ["x"] * 201}]},
     "FilterLimitExceeded",
     "The maximum number of filter values specified on a single call is 200"),
    ("DescribeInstances", {"InstanceIds": ["i-1"], "MaxResults": 5}, COMBINATION,
     "The parameter MaxResults cannot be used with the parameter InstanceIds"),
    # launches
    ("RunInstances", ONE | {"UserData": encoded(16385)}, VALUE,
     "User data is limited to 16384 bytes"),
    ("RunInstances", ONE | {"UserData": "#!/bin/sh"}, VALUE,
     "Invalid BASE64 encoding of user data."),
    ("CreateLaunchTemplate", TEMPLATE | {"LaunchTemplateData": {"UserData": encoded(16385)}},
     "InvalidUserData.Malformed", "User data is limited to 16384 bytes"),
    ("CreateLaunchTemplateVersion", {"LaunchTemplateData": {"UserData": "#!/bin/sh"}},
     "InvalidUserData.Malformed", "Invalid BASE64 encoding of user data."),
    ("RunInstances", ONE | {"InstanceMarketOptions": {"SpotOptions": {}}}, COMBINATION,
     "SpotOptions can be used with MarketType spot only"),
    ("RunInstances", ONE | spot(InstanceInterruptionBehavior="stop"), COMBINATION,
     "InstanceInterruptionBehavior stop needs a persistent Spot request"),
    ("RunInstances", ONE | {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {
        "ValidUntil": MOMENT}}}, COMBINATION,
     "ValidUntil is not supported for one-time Spot requests"),
    ("RunInstances", ONE | {"CapacityReservationSpecification": {
        "CapacityReservationPreference": "open",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}}, COMBINATION,
     "CapacityReservationPreference open cannot be used with a target"),
    ("CreateCapacityReservation", RESERVATION | {"EndDate": MOMENT}, COMBINATION,
     "EndDate goes with EndDateType limited, and only with it."),
    ("CreateCapacityReservation", RESERVATION | {"EndDateType": "limited"}, COMBINATION,
     "EndDate goes with EndDateType limited, and only with it."),
    ("CreateCapacityReservation",
     {name: one for name, one in RESERVATION.items() if name != "AvailabilityZone"},
     "MissingParameter", "The request must contain the parameter AvailabilityZone"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "parameters", "code", "text"), REFUSED)
def test_what_aws_refuses_is_refused(
    operation: str, parameters: dict[str, Any], code: str, text: str
) -> None:
    assert of(operation, parameters) == Refused(code, text)


OTHERS = [
    ("iam", "CreateRole", {"RoleName": "a b", "AssumeRolePolicyDocument": "{}"}, "ValidationError",
     r"Value (a b) for parameter RoleName is invalid. It must match [\w+=,.@-]+"),
    ("iam", "TagRole", {"RoleName": "a", "Tags": [{"Key": "a", "Value": "a|b"}]},
     "ValidationError", r"Value (a|b) for parameter Tags[0].Value is invalid. It must match"
     r" [\p{L}\p{Z}\p{N}_.:/=+\-@]*"),
    ("sts", "AssumeRole", {"RoleArn": "r" * 20}, "ValidationError",
     "The request must contain the parameter RoleSessionName"),
    ("ssm", "GetParameter", {"Name": ""}, "ValidationException",
     "Value (0 characters) for parameter Name is invalid. Minimum: 1"),
    ("ssm", "GetParameter", {"Name": 1}, "SerializationException",
     "Value (1) for parameter Name is no string"),
    ("efs", "CreateFileSystem", {"CreationToken": "x" * 65}, "BadRequest",
     "Value (65 characters) for parameter CreationToken is invalid. Maximum: 64"),
    ("fsx", "CreateFileSystem", {"FileSystemType": "LUSTRE"}, "BadRequest",
     "The request must contain the parameter SubnetIds"),
]  # fmt: skip


@pytest.mark.parametrize(("service", "operation", "parameters", "code", "text"), OTHERS)
def test_each_service_has_its_own_codes(
    service: str, operation: str, parameters: dict[str, Any], code: str, text: str
) -> None:
    assert of(operation, parameters, service) == Refused(code, text)


@pytest.fixture(scope="module")
def region() -> Iterator[World]:
    with world() as found:
        yield found


TOO_LONG = "Value (65 characters) for parameter {} is invalid. Maximum: 64"
OVER_HTTP = [
    ("ec2", "create_placement_group", {"GroupName": "a", "Strategy": "x"}, VALUE,
     "Value (x) for parameter Strategy is invalid. Allowed values: cluster, spread, partition,"
     " precision-time"),
    ("iam", "get_role", {"RoleName": "r" * 65}, "ValidationError", TOO_LONG.format("RoleName")),
    ("ssm", "get_parameters_by_path", {"Path": "/aws", "MaxResults": 11}, "ValidationException",
     "Value (11) for parameter MaxResults is invalid. Maximum: 10"),
    ("efs", "create_file_system", {"CreationToken": "x" * 65}, "BadRequest",
     TOO_LONG.format("CreationToken")),
    ("efs", "describe_file_systems", {"CreationToken": "x" * 65}, "BadRequest",
     TOO_LONG.format("CreationToken")),
    ("pricing", "get_products", {"ServiceCode": "AmazonEC2", "MaxResults": 101},
     "ValidationException", "Value (101) for parameter MaxResults is invalid. Maximum: 100"),
]  # fmt: skip


@pytest.mark.parametrize(("service", "call", "parameters", "code", "text"), OVER_HTTP)
def test_the_lab_refuses_in_each_wire_form(
    region: World, service: str, call: str, parameters: dict[str, Any], code: str, text: str
) -> None:
    with refused(code, text):
        getattr(region.client(service), call)(**parameters)


def test_the_lab_refuses_a_parameter_that_boto3_would_not_send(region: World) -> None:
    def misspell(request: Any, **_: Any) -> None:
        request.data["Colour"] = "red"

    ec2 = region.client("ec2")
    ec2.meta.events.register("request-created.ec2.DescribeVpcs", misspell)
    with pytest.raises(ClientError, match=r"\(UnknownParameter\).*: The parameter Colour is not"):
        ec2.describe_vpcs()
