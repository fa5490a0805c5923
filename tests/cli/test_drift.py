"""`gpuctl drift`: its text, its exit code, and what it compares with Pulumi's state.

What Pulumi finds is in tests/infra/test_stack.py.
"""

import json
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner, Result

import provision.drift
from cli.main import app
from config.cluster.cluster_file import Shared, Storage
from config.errors import InputError
from config.target import Target
from infra.stack.changes import Change, Refreshed
from provision.aws.clients import client
from provision.aws.resources import Resource
from provision.state.store import ClusterStore
from tests.provision.test_ownership import ANN, vpc, with_id

pytestmark = pytest.mark.slow

NODE, GROUP = "aws:ec2/instance:Instance", "aws:ec2/placementGroup:PlacementGroup"


class Engine:
    """Pulumi's part: `found` is what its refresh finds."""

    found: ClassVar[Refreshed | None] = None

    def __init__(self, *_: object) -> None:
        pass

    def drift(self, is_foreign: Callable[[str], bool]) -> Refreshed | None:
        del is_foreign
        return self.found


@pytest.fixture
def known(
    aws: Target,
    remembered: Target,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """The id of the VPC of a cluster that this machine knows and Pulumi has in its state."""
    monkeypatch.setattr(provision.drift, "Stack", Engine)
    monkeypatch.setattr(provision.drift, "find_engine", lambda report: None)
    ClusterStore(remembered).write(with_id("aaaa", account="123456789012"))
    known = vpc(client(aws, "ec2"), "aaaa", ANN)
    Engine.found = Refreshed((), frozenset({known}))
    return known


def drift(*options: str) -> Result:
    return CliRunner().invoke(app, ["drift", "demo", "--quiet", *options])


def test_without_a_difference_the_exit_code_is_zero(known: str) -> None:
    done = drift()
    assert done.exit_code == 0, done.output
    assert done.stdout == "No changes: cluster demo in AWS is as the last `gpuctl up` left it.\n"


def test_differences_are_printed_and_the_exit_code_is_three(
    known: str,
    empty_region: Target,
) -> None:
    changes = (
        Change("update", NODE, "node0", ('tags.by: (none) -> "hand"',)),
        Change("delete", GROUP, "nodes", ("it no longer exists",)),
    )
    Engine.found = Refreshed(changes, frozenset({known}))
    added = vpc(client(empty_region, "ec2"), "aaaa", ANN)
    vpc(client(empty_region, "ec2"), "bbbb", ANN)  # another cluster of this name
    done = drift()
    assert done.exit_code == 3
    assert done.stdout.splitlines() == [
        "Changed outside of gpuctl since the last `gpuctl up` of demo:",
        "  ~ aws:ec2/instance:Instance                      node0",
        '      tags.by: (none) -> "hand"',
        "  - aws:ec2/placementGroup:PlacementGroup          nodes",
        "      it no longer exists",
        f"  + VPC {added}: it has the cluster's tags, and is not in Pulumi's state",
        "Drift: 1 changed, 1 gone, 1 added. `gpuctl up FILE` undoes changes and losses;"
        " `gpuctl down` removes what was added.",
    ]
    document = json.loads(drift("--json").stdout)
    assert document["unknown"] == [f"VPC {added}"]
    assert [change["name"] for change in document["changes"]] == ["node0", "nodes"]


def test_without_a_state_there_is_nothing_to_compare(known: str, remembered: Target) -> None:
    with ClusterStore(remembered).lock("demo", "gpuctl up"):
        busy = drift()
    assert str(busy.exception) == (
        "cluster 'demo' is being changed right now; repeat this when that command has ended"
    )
    Engine.found = None
    done = drift()
    assert isinstance(done.exception, InputError)
    assert str(done.exception) == (
        "Pulumi's state has nothing of cluster 'demo'; see `gpuctl status demo` for what exists"
    )


def resource(kind: str, **attributes: Any) -> Resource:
    return Resource(kind, f"{kind}-1", "demo", "demo", "", attributes, "aaaa", ANN)


def test_what_belongs_to_a_node_is_known_with_it() -> None:
    node, other = [{"InstanceId": "i-1"}], [{"InstanceId": "i-2"}]
    left = provision.drift._unknown(
        [
            resource("volume", Attachments=node),
            resource("network interface", Attachment=node[0]),
            resource("GuardDuty endpoint"),
            resource("subnet"),
            stray := resource("volume", Attachments=other),
            free := resource("volume"),
        ],
        {"i-1", "subnet-1"},
    )
    assert left == [stray, free]


def test_tags_of_others_have_lines_of_their_own_and_the_exit_code_stays_zero(
    known: str, empty_region: Target
) -> None:
    ec2 = client(empty_region, "ec2")
    ec2.create_tags(Resources=[known], Tags=[{"Key": "by", "Value": "hand"}])
    subnets = [
        ec2.create_subnet(
            VpcId=known,
            CidrBlock=f"10.213.{number}.0/24",
            TagSpecifications=[
                {
                    "ResourceType": "subnet",
                    "Tags": [
                        {"Key": "gpuctl:cluster", "Value": "demo"},
                        {"Key": "gpuctl:id", "Value": "aaaa"},
                        {"Key": "by", "Value": "hand"},
                        {"Key": "number", "Value": str(number)},
                    ],
                }
            ],
        )["Subnet"]["SubnetId"]
        for number in range(4)
    ]
    Engine.found = Refreshed((), frozenset({known, *subnets}))
    done = drift()
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "No changes: cluster demo in AWS is as the last `gpuctl up` left it.",
        "Tags that are not gpuctl's; `gpuctl up` and `gpuctl heal` leave them alone:",
        '  by="hand": subnet (4), VPC (1)',
        "  number (4 values): subnet (4)",
    ]
    assert json.loads(drift("--json").stdout)["foreign_tags"][-1] == {
        "resource": f"VPC {known}",
        "key": "by",
        "value": "hand",
    }
    ec2.delete_tags(Resources=subnets, Tags=[{"Key": "by"}, {"Key": "number"}])
    assert drift().stdout.splitlines()[2:] == [f'  by="hand": VPC {known}']


def test_a_file_system_that_has_gone_is_a_difference(known: str, remembered: Target) -> None:
    record = with_id("aaaa", account="123456789012")
    shared = Shared(type="efs", id="fs-0123456789abcdef0")
    cluster = record.resolved.cluster.model_copy(update={"storage": Storage(shared=shared)})
    resolved = record.resolved.model_copy(update={"cluster": cluster})
    ClusterStore(remembered).write(record.model_copy(update={"resolved": resolved}))
    done = drift()
    assert done.exit_code == 3
    assert done.stdout.splitlines() == [
        "Changed outside of gpuctl since the last `gpuctl up` of demo:",
        "  - storage.shared.id: fs-0123456789abcdef0 is no EFS of this account in us-east-1",
        "Drift: 0 changed, 1 gone, 0 added. `gpuctl up FILE` undoes changes and losses;"
        " `gpuctl down` removes what was added.",
        "gpuctl did not create the file system, and cannot bring it back.",
    ]
