"""Removal when AWS refuses: what is retried, what fails, and what goes all the same."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from config.catalogue.aws_codes import remedy
from config.errors import CloudError
from config.progress import Progress, silent
from config.target import Target
from provision.aws.clients import client
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.aws.resources import Resource, find_all
from provision.removal import sweep as removal
from provision.removal.sweep import PASSES, PAUSE_S, RETRIES, sweep
from tests.aws_calls import Answer, ApiCall
from tests.infra.region import CREDENTIALS, child
from tests.provision.test_sweep import make_cluster

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

pytestmark = pytest.mark.slow

Refusals = dict[str, tuple[str, float]]
"""By operation: the code of AWS's refusal, and how many calls in a row it refuses."""
ALWAYS = float("inf")


class Aws:
    """The region's API, which refuses some calls before they reach it; `calls` are all in order."""

    def __init__(self, pauses: list[float]) -> None:
        self.pauses = pauses
        self.refusals: Refusals = {}
        self.texts: dict[str, str] = {}
        self.answers: dict[str, Callable[[Any], Any]] = {}
        self.calls: list[str] = []

    def count(self, operation: str) -> int:
        return self.calls.count(operation)


@pytest.fixture
def aws(pauses: list[float], answer_calls: Callable[[Answer], None]) -> Aws:
    aws = Aws(pauses)  # of removal, and of botocore's waiters

    def asked(call: ApiCall) -> Any:
        operation = call.operation
        aws.calls.append(operation)
        code, times = aws.refusals.get(operation, ("", 0))
        if aws.count(operation) <= times:
            text = aws.texts.get(operation, "Not now.")
            raise ClientError({"Error": {"Code": code, "Message": text}}, operation)
        return aws.answers.get(operation, lambda answer: answer)(call.ask())

    answer_calls(asked)
    return aws


@pytest.fixture(scope="module")
def region() -> Iterator[str]:
    """A region for all tests of this file: each removes what it made."""
    with child("lab.api") as (url, _):
        yield url


@pytest.fixture
def demo(region: str, tmp_path: Path) -> Iterator[Target]:
    """A region with the cluster demo in it, one of every kind of EC2's."""
    target = Target("test", "us-east-1", tmp_path, endpoint=region, environment=CREDENTIALS)
    ec2: EC2Client = client(target, "ec2")
    make_cluster(ec2, image_id(client(target, "ssm"), BASTION_IMAGE), "demo")
    yield target
    sweep(target, "demo", "", silent)


def test_what_others_hang_on_is_removed_again_until_they_are_gone(demo: Target, aws: Aws) -> None:
    """The ways in which EC2 says that something is in use still, each at its own call."""
    aws.refusals = {
        "DeleteSubnet": ("DependencyViolation", 2),
        "DeletePlacementGroup": ("InvalidPlacementGroup.InUse", 2),
        "ReleaseAddress": ("InvalidIPAddress.InUse", 2),
        "DeleteNetworkInterface": ("InvalidParameterValue", 2),
        "DeleteVpc": ("ResourceInUse", 2),
        "DetachInternetGateway": ("IncorrectState", 2),
        "DeleteInternetGateway": ("DependencyViolation", 2),  # detached by then, and only once
        "DeleteSecurityGroup": ("DependencyViolation", RETRIES - 1),
    }
    aws.texts = {"DeleteNetworkInterface": "Network interface 'eni-1' is currently in use."}
    removed = sweep(demo, "demo", "", silent)
    assert find_all(demo, "demo") == []
    assert {"subnet", "placement group", "elastic IP", "VPC", "internet gateway"} <= {
        subject.rpartition(" ")[0] for subject in removed
    }
    refused = Counter({name: int(times) for name, (_, times) in aws.refusals.items()})
    successes = Counter(dict.fromkeys(aws.refusals, 1)) + Counter({"DeleteSecurityGroup": 1})
    assert Counter(call for call in aws.calls if call in aws.refusals) == refused + successes
    assert aws.pauses.count(PAUSE_S) >= refused.total()


def test_what_stays_in_use_fails_after_everything_else_is_gone(demo: Target, aws: Aws) -> None:
    aws.refusals = {"DeleteKeyPair": ("ResourceInUse", ALWAYS)}
    reports: list[Progress] = []
    with pytest.raises(CloudError) as caught:
        sweep(demo, "demo", "", reports.append)
    said = "AWS refused DeleteKeyPair: ResourceInUse: Not now"
    assert (caught.value.message, caught.value.code) == (said, "ResourceInUse")
    assert aws.count("DeleteKeyPair") == RETRIES
    (left,) = find_all(demo, "demo")
    assert left.kind == "key pair"
    last = {report.subject: (report.stage, report.state, report.detail) for report in reports}
    assert last.pop(f"key pair {left.id}") == ("destroy", "failed", said)
    assert set(last.values()) == {("destroy", "done", "")}
    assert [r.state for r in reports if r.subject.startswith("VPC ")] == ["running", "done"]


def test_what_a_refused_termination_leaves_in_use_is_not_waited_for(demo: Target, aws: Aws) -> None:
    aws.refusals = {"TerminateInstances": ("UnauthorizedOperation", PASSES)}
    reports: list[Progress] = []
    with pytest.raises(CloudError) as caught:
        sweep(demo, "demo", "", reports.append)
    said = "AWS refused TerminateInstances: UnauthorizedOperation: Not now"
    assert (caught.value.message, caught.value.hint) == (said, remedy("UnauthorizedOperation"))
    assert PAUSE_S not in aws.pauses
    assert aws.count("TerminateInstances") == 1
    kept = {resource.kind for resource in find_all(demo, "demo")}
    assert kept == {"instance", "security group", "subnet", "VPC"}
    (used,) = {r.detail for r in reports if r.subject.startswith("subnet ") and r.detail}
    assert used.startswith("AWS refused DeleteSubnet: DependencyViolation: ")


def test_every_refusal_is_reported(demo: Target, aws: Aws) -> None:
    aws.refusals = {
        "DeleteKeyPair": ("UnauthorizedOperation", ALWAYS),
        "DeleteLaunchTemplate": ("UnauthorizedOperation", ALWAYS),
    }
    with pytest.raises(CloudError) as caught:
        sweep(demo, "demo", "", silent)
    assert caught.value.message.splitlines() == [
        "AWS refused DeleteLaunchTemplate: UnauthorizedOperation: Not now",
        "AWS refused DeleteKeyPair: UnauthorizedOperation: Not now",
    ]
    assert caught.value.code == "UnauthorizedOperation"
    assert caught.value.hint == remedy("UnauthorizedOperation")
    # What nobody may do is not tried again.
    assert (aws.count("DeleteKeyPair"), aws.count("DeleteLaunchTemplate")) == (1, 1)
    assert PAUSE_S not in aws.pauses


def test_what_is_gone_already_counts_as_removed(demo: Target, aws: Aws) -> None:
    aws.refusals = {
        "DeleteKeyPair": ("InvalidKeyPair.NotFound", 1),
        "DeletePlacementGroup": ("InvalidPlacementGroup.Unknown", 1),
    }
    removed = sweep(demo, "demo", "", silent)
    assert {"key pair", "placement group"} <= {one.rpartition(" ")[0] for one in removed}
    # They were there, in truth: the next pass found and removed them, after a pause.
    assert aws.count("DeletePlacementGroup") == 2
    assert find_all(demo, "demo") == []


def test_instances_and_gateways_have_ended_before_what_they_hang_on_is_removed(
    demo: Target, aws: Aws
) -> None:
    states: dict[str, str] = {}
    before: list[dict[str, str]] = []

    def watched(told: Any) -> Any:
        for reservation in told["Reservations"]:
            for instance in reservation["Instances"]:
                states[instance["InstanceId"]] = instance["State"]["Name"]
        return told

    def noted(told: Any) -> Any:
        before.append(dict(states))
        return told

    aws.answers = {"DescribeInstances": watched, "DeleteSubnet": noted}
    sweep(demo, "demo", "", silent)
    ended = len(aws.calls) - aws.calls[::-1].index("TerminateInstances")
    first = min(aws.calls.index(name) for name in ("DeleteNetworkInterface", "DeleteSubnet"))
    assert "DescribeInstances" in aws.calls[ended:first]
    assert "DescribeNatGateways" in aws.calls[aws.calls.index("DeleteNatGateway") : first]
    assert set(before[0].values()) == {"terminated"}


def test_an_instance_that_does_not_end_fails_after_20_minutes(demo: Target, aws: Aws) -> None:
    def never(told: Any) -> Any:
        for reservation in told["Reservations"]:
            for instance in reservation["Instances"]:
                instance["State"] = {"Code": 32, "Name": "shutting-down"}
        return told

    aws.answers = {"DescribeInstances": never}
    with pytest.raises(CloudError) as caught:
        sweep(demo, "demo", "", silent)
    assert caught.value.message.startswith(
        "AWS did not finish within 20 minutes: Waiter InstanceTerminated failed: Max attempts"
    )
    assert caught.value.hint == "repeat `gpuctl down` later"
    waited = [pause for pause in aws.pauses if pause == 3]
    assert 19 * 60 <= 3 * len(waited) <= 20 * 60


def test_what_comes_back_after_every_pass_is_named(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, target: Target
) -> None:
    """An answer of AWS that lags behind for ever: sweep ends, and says what it saw."""
    ghosts = [Resource("key pair", name, "demo", "demo", "", {}) for name in ("one", "two")]
    passes: list[str] = []
    monkeypatch.setattr(removal, "find_all", lambda *_, **__: ghosts)
    with pytest.raises(CloudError) as caught:
        sweep(target, "demo", "", lambda report: passes.append(report.state))
    assert str(caught.value) == (
        "AWS still has key pair one, key pair two; repeat `gpuctl down demo` later"
    )
    assert passes == ["running", "done"] * 2 * PASSES
    assert aws.pauses == [PAUSE_S] * (PASSES - 1)
