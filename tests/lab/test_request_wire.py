"""Requests as botocore writes them are parsed back into the parameters that they were made of."""

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from botocore.awsrequest import AWSRequest, prepare_request_dict
from botocore.serialize import create_serializer
from botocore.validate import ParamValidator
from moto.core.utils import get_service_model

from lab.requests import model_rules
from lab.requests.model_rules import BROKEN, GROWING
from lab.requests.wire import NAMES, Request, parse

SIGNED = {boto: signed for signed, boto in NAMES.items()}

OPERATIONS = {
    "ec2": ("RunInstances", "CreateLaunchTemplate", "CreateCapacityReservation", "ImportKeyPair",
            "DescribeInstances", "AuthorizeSecurityGroupIngress", "ModifyVpcAttribute",
            "DescribeSpotPriceHistory"),
    "iam": ("CreateRole", "PutRolePolicy", "TagRole", "ListRoles", "UpdateRole"),
    "sts": ("GetCallerIdentity", "AssumeRole"),
    "ssm": ("GetParameter", "StartSession", "DescribeInstanceInformation"),
    "efs": ("CreateFileSystem", "CreateMountTarget", "DescribeMountTargets", "TagResource",
            "UntagResource", "DescribeFileSystems", "ModifyMountTargetSecurityGroups"),
    "fsx": ("CreateFileSystem", "DescribeFileSystems", "DeleteFileSystem"),
    "pricing": ("GetProducts",),
    "service-quotas": ("GetServiceQuota", "ListServiceQuotas"),
}  # fmt: skip
"""Operations that gpuctl and the lab's provider use, of each wire form."""

CASES = [(service, name) for service, names in OPERATIONS.items() for name in names]

ROUNDS = range(40)
_MOMENT = datetime(2026, 11, 23, 1, 2, 3, tzinfo=UTC)
_WORDS = ("a", "b c", "1", "x=y&z", "+%2", "é/", "true")


def value(shape: Any, dice: Random, depth: int = 0) -> Any:
    """Return a random value of the shape's type, without regard to its other rules."""
    kind = shape.type_name
    if kind == "structure":
        return _members(shape, dice, depth)
    if kind == "list":
        items = [value(shape.member, dice, depth + 1) for _ in range(dice.randint(1, 3))]
        return [item for item in items if item != {}]
    if kind == "map":
        return {dice.choice(_WORDS): value(shape.value, dice, depth + 1)}
    scalars = {
        "string": dice.choice(_WORDS),
        "boolean": dice.random() < 0.5,
        "timestamp": _MOMENT,
        "blob": dice.randbytes(4),
        "float": float(dice.randint(-9, 9)),
        "double": float(dice.randint(-9, 9)),
    }
    return scalars.get(kind, dice.randint(-9, 10**9))


def _members(shape: Any, dice: Random, depth: int) -> dict[str, Any]:
    in_path = {n for n, one in shape.members.items() if one.serialization.get("location") == "uri"}
    names = in_path | set(shape.metadata.get("required", ()))
    if depth < 4:
        names |= set(dice.sample(sorted(shape.members), min(4, len(shape.members))))
    found = {name: value(shape.members[name], dice, depth + 1) for name in sorted(names)}
    # What is empty does not appear in a form.
    return {name: one for name, one in found.items() if one not in ({}, [])}


def sent(service: str, name: str, parameters: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The WSGI environment and the body of the request as botocore sends it."""
    model = get_service_model(service)
    operation = model.operation_model(name)
    written = create_serializer(model.protocol, False).serialize_to_request(parameters, operation)
    prepare_request_dict(written, "http://127.0.0.1:5000")
    request = AWSRequest(
        written["method"], written["url"], written["headers"], written["body"]
    ).prepare()
    path, _, query = str(request.url).removeprefix("http://127.0.0.1:5000").partition("?")
    environ = {
        "REQUEST_METHOD": request.method,
        "REQUEST_URI": f"{path}?{query}",
        "QUERY_STRING": query,
        "HTTP_X_AMZ_TARGET": written["headers"].get("X-Amz-Target", ""),
    }
    body = request.body or b""
    return environ, body if isinstance(body, bytes) else str(body).encode()


@pytest.mark.parametrize(("service", "name"), CASES)
def test_what_botocore_writes_is_parsed_back(service: str, name: str) -> None:
    shape = get_service_model(service).operation_model(name).input_shape
    for seed in ROUNDS:
        parameters = value(shape, Random(seed))
        found = parse(SIGNED.get(service, service), *sent(service, name, parameters))
        assert found is not None
        assert (found.service, found.name) == (service, name)
        assert found.parameters == parameters


def test_an_operation_that_the_service_does_not_have_is_no_request() -> None:
    assert parse("ec2", {}, b"Action=BuildInstances&Version=2016-11-15") is None
    assert parse("ssm", {"HTTP_X_AMZ_TARGET": "AmazonSSM.Nothing"}, b"{}") is None
    environ = {"REQUEST_METHOD": "GET", "REQUEST_URI": "/2015-02-01/nothing"}
    assert parse("elasticfilesystem", environ, b"") is None


@pytest.mark.parametrize(
    ("form", "parameters"),
    [
        ("MinCount=two&Placement=x", {"MinCount": "two", "Placement": {}}),
        ("DryRun=True&Colour=red", {"DryRun": "True", "Colour": "red"}),
        ("Monitoring.Colour.1=red", {"Monitoring": {"Colour": {"1": "red"}}}),
        ("SecurityGroupId=sg-1", {"SecurityGroupIds": "sg-1"}),
        ("SecurityGroupId.first=sg-1", {"SecurityGroupIds": {"first": "sg-1"}}),
        ("ImageId.1=ami-1", {"ImageId": {"1": "ami-1"}}),
        ("InstanceMarketOptions.SpotOptions.ValidUntil=soon",
         {"InstanceMarketOptions": {"SpotOptions": {"ValidUntil": "soon"}}}),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_kept_for_the_rules(form: str, parameters: dict[str, Any]) -> None:
    found = parse("ec2", {}, f"Action=RunInstances&{form}".encode())
    assert found is not None
    assert found.parameters == parameters


def test_a_body_that_is_no_object_has_no_parameters() -> None:
    environ = {"HTTP_X_AMZ_TARGET": "AmazonSSM.GetParameter"}
    for body in (b"", b"[1]", b"{", gzip.compress(b"{}")):
        found = parse("ssm", environ, body)
        assert found is not None
        assert found.parameters == {}
    unknown = parse("ssm", environ, json.dumps({"Name": 1, "Colour": [2]}).encode())
    assert unknown is not None
    assert unknown.parameters == {"Name": 1, "Colour": [2]}


@pytest.mark.parametrize(("service", "name"), CASES)
def test_what_botocore_itself_refuses_is_refused(service: str, name: str) -> None:
    """botocore's validator checks types, required members and minimums: we find no fewer."""
    operation = get_service_model(service).operation_model(name)
    for seed in ROUNDS:
        parameters = value(operation.input_shape, dice := Random(seed))
        for gone in dice.sample(sorted(parameters), dice.randint(0, len(parameters))):
            parameters[gone] = dice.choice([{"Colour": "red"}, 1, "", True])
        if dice.random() < 0.5:
            parameters.clear()
        theirs = ParamValidator().validate(parameters, operation.input_shape)
        ours = list(model_rules.problems(Request(service, operation, parameters)))
        if theirs.has_errors():
            assert ours


def _shapes(shape: Any, known: set[str]) -> Iterator[Any]:
    if shape.name in known:
        return
    known.add(shape.name)
    yield shape
    inner = {"structure": "members", "list": "member", "map": "value"}.get(shape.type_name)
    below = getattr(shape, inner) if inner else {}
    for one in below.values() if isinstance(below, dict) else [below]:
        yield from _shapes(one, known)


@pytest.mark.parametrize(("service", "name"), CASES)
def test_the_models_have_what_the_parser_and_the_rules_expect(service: str, name: str) -> None:
    shape = get_service_model(service).operation_model(name).input_shape
    for one in _shapes(shape, set()):
        assert one.type_name in model_rules._TYPES
        if pattern := one.metadata.get("pattern"):
            model_rules._compiled(pattern)
        if service in ("ec2", "iam", "sts"):
            assert one.type_name != "map"
            assert not one.serialization.get("flattened")


def test_the_exceptions_are_still_needed() -> None:
    model = get_service_model("ec2")
    (broken,), (growing,) = BROKEN, GROWING
    arn = "arn:aws:ec2:us-east-1:123456789012:placement-group/gpuctl-demo"
    assert not model_rules._compiled(model.shape_for(broken).metadata["pattern"]).fullmatch(arn)
    assert "p4d.24xlarge" in model.shape_for(growing).metadata["enum"]
