"""gpuctl's calls to AWS as a file records them: names and states, and no secret."""

import json
from pathlib import Path

import pytest

from config.errors import CloudError
from config.target import Target
from provision.aws.calls import VARIABLE, Call, redact
from provision.aws.clients import aws_errors, client, forget_clients
from smoke.ladder_record import read_calls


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the clients of this test append to."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "calls.jsonl"))
    forget_clients()
    return tmp_path / "calls.jsonl"


def test_an_answer_is_recorded_by_the_names_of_its_fields(target: Target, calls: Path) -> None:
    client(target, "ec2").describe_availability_zones()
    (call,) = read_calls(calls)
    assert (call.service, call.operation) == ("ec2", "DescribeAvailabilityZones")
    assert "AvailabilityZones[].ZoneName" in call.fields
    assert "us-east-1a" not in calls.read_text()
    assert call.sent == ()
    assert (call.code, call.message, call.retries) == ("", "", 0)


def test_states_are_recorded_with_the_resource(empty_region: Target, calls: Path) -> None:
    ec2 = client(empty_region, "ec2")
    vpc = ec2.create_vpc(CidrBlock="10.213.0.0/16")["Vpc"]["VpcId"]
    assert read_calls(calls)[-1].sent == ("CidrBlock",)
    ec2.describe_vpcs(Filters=[{"Name": "vpc-id", "Values": [vpc]}])
    assert read_calls(calls)[-1].sent == ("Filters", "Filters[].Name", "Filters[].Values")
    states = [(one.kind, one.id, one.state) for one in read_calls(calls)[-1].states]
    assert ("Vpc State", vpc, "available") in states


def test_a_refusal_is_recorded_with_its_code_and_reason(target: Target, calls: Path) -> None:
    with pytest.raises(CloudError), aws_errors():
        client(target, "ec2").describe_vpcs(VpcIds=["vpc-0"])
    (call,) = read_calls(calls)
    assert (call.code, call.fields) == ("InvalidVpcID.NotFound", ())
    assert call.message == "VpcID {'vpc-0'} does not exist."


def test_a_call_that_no_server_answers_is_recorded(target: Target, calls: Path) -> None:
    nowhere = Target("x", "us-east-1", target.state, "http://127.0.0.1:1", target.environment)
    with pytest.raises(CloudError), aws_errors():
        client(nowhere, "ec2", attempts=1).describe_vpcs()
    (call,) = read_calls(calls)
    assert (call.operation, call.code) == ("DescribeVpcs", "EndpointConnectionError")


def test_no_value_of_a_request_or_answer_is_recorded(target: Target, calls: Path) -> None:
    name = "/aws/service/debian/release/12/latest/amd64"
    client(target, "ssm").get_parameter(Name=name)
    text = calls.read_text()
    assert sorted(json.loads(text)) == sorted(Call.model_fields)
    for secret in (name, "ami-", *target.environment.values()):
        assert secret not in text


def test_without_the_variable_nothing_is_recorded(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    forget_clients()
    client(target, "ec2").describe_vpcs()
    assert not (tmp_path / "calls.jsonl").exists()


def test_tokens_are_cut_from_messages() -> None:
    token = "IQoJb3JpZ2luX2VjEJr" * 4
    assert redact(f"The token {token} is wrong") == "The token … is wrong"
    assert redact("You may not. Encoded authorization failure message: abc") == "You may not."
    assert redact("It does not match.\n\nThe Canonical String was x") == "It does not match."
    assert redact("") == ""
