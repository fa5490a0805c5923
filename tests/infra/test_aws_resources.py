"""The program's resource types are those of Pulumi's SDK for AWS, without its import."""

import asyncio
import sys
from collections.abc import Callable
from importlib.metadata import version
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pulumi
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from pulumi import _types as sdk
from pulumi.runtime import mocks
from pulumi.runtime.proto.resource_pb2 import RegisterResourceResponse, ResourceInvokeResponse
from pulumi.runtime.stack import run_pulumi_func

from infra.program import aws_resources as aws
from lab.provider import server
from tests.plans.sdk_types import args_class, sdk_class

TYPES = aws.AwsResource.__subclasses__()
NO_MOCKS: Any = None  # the monitor answers by itself


class Requests(mocks.MockMonitor):
    """An engine that keeps what it is asked for, without the place in the program."""

    def __init__(self) -> None:
        super().__init__(NO_MOCKS)
        self.sent: list[dict[str, Any]] = []

    def RegisterResource(self, request: Any) -> Any:
        if request.custom:
            self._keep(request)
        request.object.update({"latestVersion": 3.0, "privateIp": "10.0.0.9"})
        urn = self.make_urn(request.parent, request.type, request.name)
        return RegisterResourceResponse(urn=urn, id=request.name, object=request.object)

    def Invoke(self, request: Any) -> Any:
        self._keep(request)
        found = Struct()
        found.update({"id": "eni-1"})
        return ResourceInvokeResponse(**{"return": found})

    def _keep(self, request: Any) -> None:
        fields = MessageToDict(request)
        self.sent.append({k: v for k, v in fields.items() if k not in PLACE})


PLACE = {"sourcePosition", "stackTrace"}


def requests(program: Callable[[], None]) -> list[dict[str, Any]]:
    """What the engine is asked for by a program."""
    engine = Requests()

    async def run() -> None:
        mocks.set_mocks(NO_MOCKS, monitor=engine)
        await run_pulumi_func(program)

    asyncio.run(run())  # in a context of its own: the mocks are gone after it
    return sorted(engine.sent, key=lambda request: str(request.get("type")))


@pytest.fixture(scope="module")
def pulumi_aws() -> Any:
    return sys.modules[sdk_class("aws:ec2/vpc:Vpc").__module__.partition(".")[0]]


def test_the_engine_is_asked_for_what_the_sdk_asks_for() -> None:
    """Type, names of inputs, version, and what else the SDK's classes add."""
    opts = pulumi.ResourceOptions(delete_before_replace=True)

    def ours() -> None:
        for kind in TYPES:
            kind("one", opts=opts, **_values(kind))

    def theirs() -> None:
        for kind in TYPES:
            sdk_class(kind.pulumi_type)("one", opts=opts, **_values(kind))

    sent = requests(ours)
    assert len(sent) == len(TYPES) == 18
    assert sent == requests(theirs)


def _values(kind: type[aws.AwsResource]) -> dict[str, Any]:
    """The type's required inputs, its tags, and what the SDK's class would else set."""
    found: dict[str, Any] = {}
    for name, parameter in signature(args_class(kind.pulumi_type)).parameters.items():
        if name == "tags":
            found[name] = {"Name_of": "demo"}
        elif name == "description" or parameter.default is Parameter.empty:
            found[name] = "x"
    return found


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: str(kind.__name__))
def test_the_sdk_has_the_outputs_of_a_type(kind: type[aws.AwsResource]) -> None:
    assert set(kind.outputs) <= set(sdk.resource_pulumi_to_py_names(sdk_class(kind.pulumi_type)))


@pytest.mark.parametrize("attempts", [None, 5])
def test_the_provider_is_the_sdks(attempts: int | None, pulumi_aws: Any) -> None:
    def ours() -> None:
        aws.provider("us-west-2", ["123456789012"], attempts)

    def theirs() -> None:
        pulumi_aws.Provider(
            "aws",
            region="us-west-2",
            allowed_account_ids=["123456789012"],
            max_retries=attempts,
            ignore_tags=pulumi_aws.ProviderIgnoreTagsArgs(keys=["gpuctl:ends"]),
        )

    assert requests(ours) == requests(theirs)


def test_a_network_interface_is_found_as_the_sdk_finds_it(pulumi_aws: Any) -> None:
    filters = {"attachment.instance-id": "i-1", "addresses.private-ip-address": "10.0.0.9"}

    def ours() -> None:
        aws.network_interface(filters, aws.provider("us-west-2", ["123456789012"]))

    def theirs() -> None:
        pulumi_aws.ec2.get_network_interface_output(
            filters=[{"name": name, "values": [value]} for name, value in filters.items()],
            opts=pulumi.InvokeOutputOptions(provider=aws.provider("us-west-2", ["123456789012"])),
        )

    assert requests(ours) == requests(theirs)


def test_outputs_are_read_by_pythons_names() -> None:
    found: list[Any] = []
    opts = pulumi.ResourceOptions()

    def program() -> None:
        pulumi.Output.all(
            aws.Instance("node0", opts=opts).private_ip,
            aws.KeyPair("key", opts=opts, key_name="demo").key_name,
            aws.LaunchTemplate("nodes", opts=opts).latest_version,
            aws.network_interface({"a": "b"}, aws.provider("us-west-2", ["1"])),
        ).apply(found.extend)

    requests(program)
    assert found == ["10.0.0.9", "demo", 3, "eni-1"]


def test_nested_inputs_have_pulumis_names_and_no_none() -> None:
    assert aws.inputs(ipv6_cidr_block="x", to_port=0, self=True, iops=None) == {
        "ipv6CidrBlock": "x",
        "toPort": 0,
        "self": True,
    }


def test_program_lab_sdk_and_docs_have_one_version() -> None:
    assert version("pulumi-aws") == aws.VERSION == server.VERSION
    page = (Path(__file__).parents[2] / "docs/security.md").read_text()
    assert f"plugin install resource aws {aws.VERSION} " in page
