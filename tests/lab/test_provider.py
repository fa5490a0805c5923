"""The provider by its own protocol, against the lab's API, without the engine.

How it does with the engine is in tests/infra/test_stack.py.
"""

import io
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from lab import fault_table
from lab.api.error_answers import error_answer
from lab.api.errors import Refusal, bad_value, in_use
from lab.api.faults import failure
from lab.api.server import ApiServer, Application
from lab.provider.compute import PlacementGroup
from lab.provider.resource import TIMES, Times, wait
from lab.provider.server import serve
from lab.provider.values import UNKNOWN, from_struct, to_struct
from tests.labs import KEY

pytestmark = pytest.mark.slow

VPC = "aws:ec2/vpc:Vpc"
GROUP = "aws:ec2/placementGroup:PlacementGroup"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
INSTANCE = "aws:ec2/instance:Instance"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    return tmp_path / "faults.json"


@pytest.fixture
def api(faults: Path) -> Iterator[ApiServer]:
    with ApiServer(KEY, faults=faults) as server:
        yield server


@pytest.fixture
def times() -> Times:
    return TIMES


@pytest.fixture
def provider(api: ApiServer, monkeypatch: pytest.MonkeyPatch, times: Times) -> Iterator[Any]:
    for name, value in KEY.environment.items():
        monkeypatch.setenv(name, value)
    server, port = serve(api.url, times=times)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = provider_pb2_grpc.ResourceProviderStub(channel)
        stub.Configure(provider_pb2.ConfigureRequest(args=to_struct({"region": "us-east-1"})))
        yield stub
    server.stop(grace=None).wait()


def urn(kind: str) -> str:
    return f"urn:pulumi:demo::gpuctl::{kind}::it"


def check(provider: Any, kind: str, inputs: dict[str, Any]) -> dict[str, str]:
    request = provider_pb2.CheckRequest(urn=urn(kind), news=to_struct(inputs))
    return {f.property: f.reason for f in provider.Check(request).failures}


def create(provider: Any, kind: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    request = provider_pb2.CreateRequest(urn=urn(kind), properties=to_struct(inputs))
    made = provider.Create(request)
    return made.id, from_struct(made.properties)


def read(provider: Any, kind: str, rid: str, state: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    request = provider_pb2.ReadRequest(id=rid, urn=urn(kind), properties=to_struct(state))
    found = provider.Read(request)
    return found.id, from_struct(found.properties)


def delete(provider: Any, kind: str, rid: str, state: dict[str, Any]) -> None:
    request = provider_pb2.DeleteRequest(id=rid, urn=urn(kind), properties=to_struct(state))
    provider.Delete(request)


@pytest.mark.parametrize(
    ("kind", "inputs", "failures"),
    [
        (VPC, {"cidrBlock": "10.0.0.0/16", "tags": {"a": "b"}}, {}),
        (VPC, {}, {"cidrBlock": "is required"}),
        (
            VPC,
            {"cidrBlock": "10.0.0.0/16", "ipv6CidrBlock": "x"},
            {"ipv6CidrBlock": "the lab's EC2 VPC has no ipv6CidrBlock"},
        ),
        (
            VPC,
            {"cidrBlock": "10.0.0.1/16"},
            {"cidrBlock": '"10.0.0.1/16" is not a valid CIDR block: 10.0.0.1/16 has host bits set'},
        ),
        (VPC, {"cidrBlock": UNKNOWN}, {}),
        (
            GROUP,
            {"name": "g", "strategy": "near"},
            {
                "strategy": 'expected strategy to be one of ["cluster" "partition" "spread"],'
                " got near"
            },
        ),
        (
            INSTANCE,
            {"instanceType": "t3.small"},
            {"ami": "one of `ami,instance_type,launch_template` must be specified"},
        ),
    ],
)
def test_check_refuses_what_it_does_not_know(
    provider: Any, kind: str, inputs: dict[str, Any], failures: dict[str, str]
) -> None:
    assert check(provider, kind, inputs) == failures


def test_a_type_that_the_program_does_not_use_is_refused(provider: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        check(provider, "aws:s3/bucket:Bucket", {})
    assert refused.value.details() == "the lab has no resource type aws:s3/bucket:Bucket"


def test_a_preview_knows_only_what_is_known_before(provider: Any) -> None:
    inputs = to_struct({"name": "g", "strategy": "cluster"})
    request = provider_pb2.CreateRequest(urn=urn(GROUP), properties=inputs, preview=True)
    previewed = provider.Create(request)
    assert previewed.id == ""
    assert from_struct(previewed.properties) == {
        "name": "g",
        "strategy": "cluster",
        "arn": UNKNOWN,
        "placementGroupId": UNKNOWN,
    }


def test_created_read_and_deleted(provider: Any) -> None:
    rid, state = create(provider, VPC, {"cidrBlock": "10.7.0.0/16", "tags": {"Name": "demo"}})
    assert state["cidrBlock"] == "10.7.0.0/16"
    assert read(provider, VPC, rid, state) == (rid, state)
    delete(provider, VPC, rid, state)
    assert read(provider, VPC, rid, state) == ("", {})
    delete(provider, VPC, rid, state)  # gone already is no failure


def test_a_new_resource_is_used_only_when_ec2_knows_it(provider: Any, faults: Path) -> None:
    """Without the wait, the first change of the new VPC, group or address is refused."""
    fault_table.write(faults, {"consistency": ["1"]})
    vpc, state = create(provider, VPC, {"cidrBlock": "10.7.0.0/16", "enableDnsHostnames": True})
    assert state["enableDnsHostnames"] is True
    rule = {"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": ["198.18.0.9/32"]}
    inputs = {"name": "g", "description": "d", "vpcId": vpc, "ingress": [rule]}
    assert create(provider, SECURITY_GROUP, inputs)[1]["ingress"] == [rule]
    gateway = "aws:ec2/internetGateway:InternetGateway"
    assert create(provider, gateway, {"vpcId": vpc})[1]["vpcId"] == vpc
    template = {"name": "temp", "instanceType": "p4d.24xlarge", "imageId": "ami-1"}
    assert create(provider, TEMPLATE, template)[1]["latestVersion"] == 1


@pytest.mark.parametrize("times", [Times(propagation_s=0)])
def test_a_new_resource_that_ec2_does_not_know_in_time_fails_and_is_kept(
    provider: Any, faults: Path
) -> None:
    fault_table.write(faults, {"consistency": ["600"]})
    with pytest.raises(grpc.RpcError) as refused:
        create(provider, VPC, {"cidrBlock": "10.7.0.0/16"})
    assert re.fullmatch(
        r"creating EC2 VPC \((vpc-[0-9a-f]+)\): timeout while waiting for EC2 to know EC2 VPC"
        r" \(\1\) \(0 s\)",
        refused.value.details() or "",
    )


def test_diff_names_paths_and_replacements(provider: Any) -> None:
    request = provider_pb2.DiffRequest(
        id="vpc-1",
        urn=urn(VPC),
        olds=to_struct({"cidrBlock": "10.0.0.0/16", "tags": {"a": "1"}}),
        old_inputs=to_struct({"cidrBlock": "10.0.0.0/16", "tags": {"a": "1"}}),
        news=to_struct({"cidrBlock": "10.1.0.0/16", "tags": {"a": "2"}}),
    )
    answer = provider.Diff(request)
    kinds = provider_pb2.PropertyDiff
    assert answer.changes == provider_pb2.DiffResponse.DIFF_SOME
    assert list(answer.replaces) == ["cidrBlock"]
    assert {path: diff.kind for path, diff in answer.detailedDiff.items()} == {
        "cidrBlock": kinds.UPDATE_REPLACE,
        "tags.a": kinds.UPDATE,
    }


def test_update_changes_rules_and_tags_in_place(provider: Any) -> None:
    vpc, _ = create(provider, VPC, {"cidrBlock": "10.7.0.0/16"})
    rule = {"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": ["198.18.0.9/32"]}
    everything = {"protocol": "-1", "fromPort": 0, "toPort": 0, "self": True}
    old = {"name": "g", "description": "d", "vpcId": vpc, "ingress": [rule], "tags": {"a": "1"}}
    rid, state = create(provider, SECURITY_GROUP, old)
    new = {**old, "ingress": [everything], "egress": [everything], "tags": {"b": "2"}}
    request = provider_pb2.UpdateRequest(
        id=rid,
        urn=urn(SECURITY_GROUP),
        olds=to_struct(state),
        old_inputs=to_struct(old),
        news=to_struct(new),
    )
    updated = from_struct(provider.Update(request).properties)
    assert (updated["ingress"], updated["egress"]) == ([everything], [everything])
    assert updated["tags"] == {"b": "2"}
    assert read(provider, SECURITY_GROUP, rid, {}) == (
        rid,
        {k: v for k, v in updated.items() if k != "name"} | {"name": "g"},
    )


def test_a_template_drifts_when_somebody_makes_a_version(provider: Any, api: ApiServer) -> None:
    inputs = {"name": "temp", "instanceType": "p4d.24xlarge", "imageId": "ami-1"}
    rid, state = create(provider, TEMPLATE, inputs)
    assert (state["latestVersion"], state["defaultVersion"]) == (1, 1)
    ec2 = boto3_client(api)
    ec2.create_launch_template_version(
        LaunchTemplateId=rid, LaunchTemplateData={"InstanceType": "p5.48xlarge", "ImageId": "ami-1"}
    )
    _, drifted = read(provider, TEMPLATE, rid, state)
    assert (drifted["instanceType"], drifted["latestVersion"]) == ("p5.48xlarge", 2)
    assert drifted["imageId"] == "ami-1"


def boto3_client(api: ApiServer) -> Any:
    import boto3

    return boto3.client("ec2", endpoint_url=api.url, region_name="us-east-1")


def test_errors_carry_aws_own_code_and_text(provider: Any) -> None:
    create(provider, GROUP, {"name": "g", "strategy": "cluster"})
    with pytest.raises(grpc.RpcError) as refused:
        create(provider, GROUP, {"name": "g", "strategy": "cluster"})
    assert refused.value.details() == (
        "creating EC2 Placement Group: operation error EC2: CreatePlacementGroup, api error"
        " InvalidPlacementGroup.Duplicate: The placement group 'g' already exists."
    )


def test_what_exists_but_is_not_ready_is_told_to_the_engine(provider: Any) -> None:
    inputs = {"vpcId": "vpc-00000000"}
    with pytest.raises(grpc.RpcError) as refused:
        create(provider, "aws:ec2/internetGateway:InternetGateway", inputs)
    [(_, packed)] = [
        item for item in refused.value.trailing_metadata() if item[0] == "grpc-status-details-bin"
    ]
    failure = provider_pb2.ErrorResourceInitFailed()
    assert status_pb2.Status.FromString(packed).details[0].Unpack(failure)
    assert failure.id.startswith("igw-")
    assert "InvalidVpcID.NotFound" in failure.reasons[0]
    assert from_struct(failure.inputs) == inputs


@pytest.mark.parametrize("end", ["SIGTERM", "stdin"])
def test_the_process_ends_when_told_and_when_its_parent_lets_go(end: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.provider", "--endpoint", "http://127.0.0.1:9"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert int(process.stdout.readline()) > 1024
        if end == "stdin":
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


class Refusing:
    """The API, which refuses the requests of an action; `tries` counts them.

    `error` gives the error of each try, None for one that is answered.
    """

    def __init__(self, api: ApiServer, action: str, error: Callable[[int], Refusal | None]) -> None:
        self._action, self._error = f"Action={action}&".encode(), error
        self.tries = 0
        api.surround(self._around)

    def _around(self, inner: Application) -> Application:
        def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
            error = None
            if self._action in body:
                self.tries += 1
                error = self._error(self.tries)
            if error is None:
                return inner(environ, start)
            refused = error_answer("ec2", error.code, str(error.message), f"{error.status} Refused")
            start(refused.status, refused.headers)
            return [refused.body]

        return answer


@pytest.mark.parametrize(
    ("configured", "code", "tries"),
    [
        ({"maxRetries": "5"}, "InsufficientInstanceCapacity", 5),
        ({}, "InsufficientInstanceCapacity", 25),
        ({"maxRetries": "5"}, "RequestLimitExceeded", 5),
        ({"maxRetries": "5"}, "InternalError", 5),
        ({"maxRetries": "5"}, "InvalidParameterValue", 1),
    ],
)
@pytest.mark.parametrize("times", [Times(faster=1e9)])
def test_what_the_real_provider_repeats_is_repeated_as_often(
    provider: Any, api: ApiServer, configured: dict[str, str], code: str, tries: int
) -> None:
    refusing = Refusing(api, "RunInstances", lambda _: failure(code))
    arguments = to_struct({"region": "us-east-1", **configured})
    provider.Configure(provider_pb2.ConfigureRequest(args=arguments))
    with pytest.raises(grpc.RpcError) as caught:
        create(provider, INSTANCE, {"ami": "ami-1", "instanceType": "p4d.24xlarge"})
    assert f"api error {code}: " in (caught.value.details() or "")
    assert refusing.tries == tries


@pytest.mark.parametrize(
    ("text", "tries"),
    [
        ("Value (n) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile"
         " name", 3),
        ("IAM Instance Profile 'n' has no associated IAM Roles", 3),
        ("Invalid value 'z9' for InstanceType.", 1),
    ],
)  # fmt: skip
def test_a_launch_is_repeated_while_its_profile_is_new(
    provider: Any, api: ApiServer, text: str, tries: int
) -> None:
    """IAM's changes reach EC2 after about ten seconds; the real provider repeats the launch."""
    refusing = Refusing(
        api, "RunInstances", lambda count: bad_value(text if count < 3 else "another reason")
    )
    with pytest.raises(grpc.RpcError):
        create(provider, INSTANCE, {"ami": "ami-1", "instanceType": "p4d.24xlarge"})
    assert refusing.tries == tries


def test_a_removal_is_repeated_while_another_resource_uses_the_target(
    provider: Any, api: ApiServer
) -> None:
    rid, state = create(provider, VPC, {"cidrBlock": "10.7.0.0/16"})
    used = in_use("the VPC has dependencies")
    refusing = Refusing(api, "DeleteVpc", lambda count: used if count < 3 else None)
    delete(provider, VPC, rid, state)
    assert (refusing.tries, read(provider, VPC, rid, state)) == (3, ("", {}))


@pytest.mark.parametrize("times", [Times(faster=1e9)])
def test_a_removal_is_given_up_while_the_target_stays_in_use(provider: Any, api: ApiServer) -> None:
    rid, state = create(provider, VPC, {"cidrBlock": "10.7.0.0/16"})
    boto3_client(api).create_security_group(GroupName="g", Description="d", VpcId=rid)
    with pytest.raises(grpc.RpcError) as refused:
        delete(provider, VPC, rid, state)
    assert refused.value.details() == (
        f"deleting EC2 VPC ({rid}): operation error EC2: DeleteVpc, api error DependencyViolation:"
        f" The vpc '{rid}' has dependencies and cannot be deleted."
    )


@pytest.mark.parametrize("times", [Times(wait_s=0.2)])
@pytest.mark.parametrize(("asked", "shown"), [(0.0, "(0 s)"), (2.0, "(2 s)")])
def test_a_creation_may_take_as_long_as_the_program_says(
    provider: Any, monkeypatch: pytest.MonkeyPatch, asked: float, shown: str
) -> None:
    """Without `custom_timeouts` the real provider's own limit applies: ten minutes."""
    monkeypatch.setattr(PlacementGroup, "create", lambda *_: "it")
    monkeypatch.setattr(PlacementGroup, "is_known", lambda *_: True)
    monkeypatch.setattr(PlacementGroup, "complete", lambda *_: wait(lambda: False, "it to run"))
    request = provider_pb2.CreateRequest(
        urn=urn(GROUP),
        properties=to_struct({"name": "it", "strategy": "cluster"}),
        timeout=asked,
    )
    with pytest.raises(grpc.RpcError) as caught:
        provider.Create(request)
    assert f"timeout while waiting for it to run {shown}" in (caught.value.details() or "")
