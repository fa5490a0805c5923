"""What a cluster was launched with stays where a newer gpuctl would launch it otherwise."""

import base64
import gzip
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Interface, Resolved
from config.progress import silent
from config.target import Target
from infra.program.user_data import encode
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from provision.preflight.preflight import resolve
from provision.preflight.replacements import OlderSettings
from provision.state import record
from provision.state.store import ClusterStore
from provision.up import plan
from tests.aws_calls import Answer, ApiCall
from tests.infra.region import Region, client

pytestmark = pytest.mark.slow

FILE = {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge"}
ONE_INTERFACE = (Interface(card=0, device=0, type="interface"),)


def cluster(**changes: Any) -> Cluster:
    return Cluster.model_validate({**FILE, **changes})


def launched_earlier(target: Target) -> Resolved:
    """What an older gpuctl, which knew less of machines, has made of the file."""
    now = resolve(cluster(), ClusterStore(target))
    return now.model_copy(
        update={
            "interfaces": ONE_INTERFACE,
            "user_data": f"{now.user_data}# as it was\n",
            "bastion_user_data": f"{now.bastion_user_data}# as it was\n",
        }
    )


def remember(resolved: Resolved, target: Target) -> Resolved:
    ClusterStore(target).write(record.new_record(resolved, datetime.now(UTC)))
    return resolved


def launched(resolved: Resolved) -> tuple[object, ...]:
    return (resolved.user_data, resolved.bastion_user_data, resolved.interfaces)


def test_the_same_file_keeps_what_was_launched(target: Target) -> None:
    was = remember(launched_earlier(target), target)
    for file in (cluster(), cluster(nodes=3, budget={"max_hourly": 1000.0})):
        again = resolve(file, ClusterStore(target))
        assert launched(again) == launched(was)
        assert again.warnings == ()
    fresh = resolve(cluster(), ClusterStore(target), refresh=True)
    assert "# as it was" not in fresh.user_data + fresh.bastion_user_data
    assert len(fresh.interfaces) == 5
    assert fresh.id == was.id


@pytest.mark.parametrize(
    "changes",
    [
        {"setup": {"commands": ("true",)}},
        {"instance_type": "p4de.24xlarge"},
        {"image": "dlami-ubuntu-22.04"},
        {"network": {"efa": "off"}},
    ],
)
def test_nodes_that_the_file_changes_are_renewed_as_a_whole(
    target: Target, changes: dict[str, Any]
) -> None:
    was = remember(launched_earlier(target), target)
    now = resolve(cluster(**changes), ClusterStore(target))
    assert "# as it was" not in now.user_data
    assert (now.interfaces == ONE_INTERFACE) is ("network" in changes)
    assert now.bastion_user_data == was.bastion_user_data


def test_the_bastion_is_renewed_where_the_file_changes_it(target: Target) -> None:
    remember(launched_earlier(target), target)
    assert (
        "# as it was"
        not in resolve(cluster(lifetime={"max": "8h"}), ClusterStore(target)).bastion_user_data
    )


def test_a_file_that_this_gpuctl_refuses_is_another(target: Target) -> None:
    was = launched_earlier(target)
    refused = cluster(instance_type="p3.16xlarge", image="stock-ubuntu-24.04")
    remember(was.model_copy(update={"cluster": refused}), target)
    assert "# as it was" not in resolve(cluster(), ClusterStore(target)).user_data


def test_without_permission_to_ask_for_the_template_the_plan_warns(
    target: Target, answer_calls: Callable[[Answer], None]
) -> None:
    remember(resolve(cluster(), ClusterStore(target)), target)

    def refuse(call: ApiCall) -> Any:
        if call.operation == "DescribeLaunchTemplates":
            raise ClientError({"Error": {"Code": "UnauthorizedOperation"}}, call.operation)
        return call.ask()

    answer_calls(refuse)
    assert resolve(cluster(), ClusterStore(target)).warnings == (
        "what the nodes were launched with could not be checked"
        " (UnauthorizedOperation: allow ec2:DescribeLaunchTemplates and"
        " ec2:DescribeLaunchTemplateVersions)",
    )


def test_a_colleague_without_the_private_key_plans_with_that_of_the_record(target: Target) -> None:
    was = remember(resolve(cluster(), ClusterStore(target)), target)
    for name in ("id_ed25519", "id_ed25519.pub"):
        (target.clusters / "demo" / name).unlink()
    now = resolve(cluster(), ClusterStore(target))
    assert (now.public_key, now.user_data) == (was.public_key, was.user_data)
    assert not (target.clusters / "demo" / "id_ed25519").exists()


def test_user_data_that_ec2_has_are_not_compressed_anew() -> None:
    text = "#cloud-config\n" + "# a line that is the same each time\n" * 500
    sent = base64.b64encode(gzip.compress(text.encode(), 1, mtime=0)).decode()
    assert encode(text) != sent
    assert encode(text, sent) == sent
    assert encode("#cloud-config\n", sent) == encode("#cloud-config\n")
    plain = base64.b64encode(b"#cloud-config\n").decode()
    assert encode("#cloud-config\n", plain) == plain
    for broken in ("H4sIAAAA", "no base64!", base64.b64encode(b"\x1f\x8b\x08").decode()):
        assert encode(text, broken) == encode(text)


@pytest.mark.engine
def test_a_cluster_of_an_older_gpuctl_stays_until_refresh(here: Region, engine: Engine) -> None:
    target = here.target
    was = remember(launched_earlier(target), target)
    Stack("demo", target, engine).up(was)
    same = plan(cluster(), target, silent)
    assert (same.plan.is_empty, same.replaced, same.older) == (True, {}, {})
    (template,) = client(target).describe_launch_template_versions(
        LaunchTemplateName="gpuctl-demo-nodes"
    )["LaunchTemplateVersions"]
    assert same.resolved.sent == template["LaunchTemplateData"]["UserData"]

    fresh = plan(cluster(), target, silent, refresh=True)
    assert fresh.replaced == {"bastion": "--refresh: user data changed"}
    why = "--refresh: network interfaces, user data changed"
    assert fresh.older == dict.fromkeys(("node0", "node1"), OlderSettings(why, may_stay=False))
    nodes = [change for change in fresh.plan.changes if change.name in fresh.older]
    assert [change.op for change in nodes] == ["same", "same"]

    changed = plan(cluster(image="dlami-ubuntu-22.04"), target, silent)
    reason = "image changed; network interfaces changed"
    assert {one.reason for one in changed.older.values()} == {reason}
