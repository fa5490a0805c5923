"""Ssh through Session Manager: its plugin, its token that nobody sees, and its agents."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from config.cluster.cluster_file import Cluster
from config.errors import InputError, NodeError
from config.target import Target
from nodes.inventory import Node
from provision.aws.clients import client
from provision.billing.cost import access_prices
from provision.preflight.preflight import resolve
from provision.setup import session_manager
from provision.state.store import ClusterStore
from tests.infra.region import CREDENTIALS, child
from tests.provision.test_sweep import make_identity

pytestmark = pytest.mark.slow

PLUGIN = """\
#!{python}
import json, os, sys
if sys.argv[1:] == ["--version"]:
    sys.exit(print("1.2.694.0"))
line = sys.stdin.readline()
told = {{"argv": sys.argv[1:], "answer": os.environ["AWS_SSM_START_SESSION_RESPONSE"], "in": line}}
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def region() -> Iterator[str]:
    with child("lab.api") as (url, _):
        yield url


@pytest.fixture
def target(region: str, tmp_path: Path) -> Target:
    plugin = tmp_path / "session-manager-plugin"
    plugin.write_text(PLUGIN.format(python=sys.executable))
    plugin.chmod(0o755)
    return Target(
        name="test",
        region="us-east-1",
        state=tmp_path / "gpuctl",
        endpoint=region,
        environment=CREDENTIALS,
        session_plugin=(str(plugin),),
    )


@pytest.fixture(scope="module")
def instances(region: str) -> tuple[str, str]:
    """One that Session Manager reaches, one that it does not."""
    there = Target("test", "us-east-1", Path("/"), endpoint=region, environment=CREDENTIALS)
    ec2 = client(there, "ec2")
    vpc = ec2.create_vpc(CidrBlock="10.50.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.50.0.0/24", AvailabilityZone="us-east-1a")
    name = make_identity(there, "demo")
    launch: dict[str, Any] = {
        "ImageId": ec2.describe_images()["Images"][0]["ImageId"],
        "InstanceType": "p4d.24xlarge",
        "SubnetId": subnet["Subnet"]["SubnetId"],
        "MinCount": 1,
        "MaxCount": 1,
    }
    (reached,) = run_with_profile(ec2, **launch, IamInstanceProfile={"Name": name})
    return reached["InstanceId"], ec2.run_instances(**launch)["Instances"][0]["InstanceId"]


def run_with_profile(ec2: Any, **launch: Any) -> Any:
    """Launch an instance as soon as EC2 knows its new profile."""
    while True:
        try:
            return ec2.run_instances(**launch)["Instances"]
        except ClientError as error:
            if "Invalid IAM Instance Profile name" not in str(error):
                raise


def cluster(**network: Any) -> Cluster:
    data = {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge"}
    return Cluster.model_validate({**data, "network": {"access": "ssm", **network}})


def test_without_the_plugin_nothing_is_begun(target: Target) -> None:
    lacking = replace(target, session_plugin=("no-such-plugin",))
    with pytest.raises(InputError) as caught:
        resolve(cluster(), ClusterStore(lacking))
    assert str(caught.value) == (
        "network.access is ssm, but no-such-plugin is not on PATH; install AWS's"
        " session-manager-plugin, 1.2.536.0 or newer: https://docs.aws.amazon.com/systems-manager/"
        "latest/userguide/session-manager-working-with-install-plugin.html"
    )
    assert not target.clusters.exists()


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ("1.2.536.0", ""),
        ("1.10.0.0", ""),
        ("2.0.0.0", ""),
        ("1.2.535.9", "{} is 1.2.535.9, older than 1.2.536.0"),
        ("1.2.99.0", "{} is 1.2.99.0, older than 1.2.536.0"),
        ("no idea", "`{} --version` prints no version"),
        ("", "`{} --version` prints no version"),
    ],
)
def test_a_plugin_that_is_too_old_is_refused(target: Target, says: str, problem: str) -> None:
    (plugin,) = target.session_plugin
    Path(plugin).write_text(f"#!/bin/sh\necho {says}\n")
    if not problem:
        session_manager.check_plugin(cluster(), target)
        return
    with pytest.raises(InputError) as caught:
        session_manager.check_plugin(cluster(), target)
    assert caught.value.message == f"network.access is ssm, but {problem.format(plugin)}"
    assert caught.value.hint.startswith(
        "install AWS's session-manager-plugin, 1.2.536.0 or newer: https://docs.aws.amazon.com/"
    )
    # Who reaches the nodes in another way needs none.
    session_manager.check_plugin(cluster(access="elastic-ip"), target)


def test_a_plugin_that_hangs_is_none(target: Target) -> None:
    Path(target.session_plugin[0]).write_text("#!/bin/sh\nexec sleep 1000\n")
    assert session_manager.plugin_version(target.session_plugin, 0.2) is None


def test_the_labs_plugin_is_new_enough() -> None:
    plugin = Path(__file__).parents[2] / "lab" / "session_manager_plugin.py"
    assert session_manager.plugin_problem((sys.executable, str(plugin), "no lab")) == ""


def test_nobody_s_address_is_asked_for_and_no_bastion_is_paid(target: Target) -> None:
    found = resolve(cluster(), ClusterStore(target))
    assert found.ssh_from == ""
    assert [what for what, _ in access_prices(found)] == ["NAT gateway", "1 public address"]


def become(target: Target, instance: str) -> subprocess.CompletedProcess[str]:
    """A process that becomes a session, with a line on its standard input."""
    script = (
        "import sys; from pathlib import Path; from config.target import Target;"
        "from provision.setup.session_manager import become_session;"
        "become_session(sys.argv[1], Target('test', 'us-east-1', Path('/'), endpoint=sys.argv[2],"
        f" environment={dict(CREDENTIALS)!r}, session_plugin=(sys.argv[3],)))"
    )
    return subprocess.run(
        [sys.executable, "-c", script, instance, str(target.endpoint), target.session_plugin[0]],
        input="SSH-2.0-test\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )


def test_the_token_is_in_no_argument(target: Target, instances: tuple[str, str]) -> None:
    done = become(target, instances[0])
    told = json.loads(done.stdout)
    answer = json.loads(told["answer"])
    assert set(answer) == {"SessionId", "StreamUrl", "TokenValue"}
    wanted = {
        "Target": instances[0],
        "DocumentName": "AWS-StartSSHSession",
        "Parameters": {"portNumber": ["22"]},
    }
    name, where, operation, profile, request, endpoint = told["argv"]
    assert (name, where, operation, profile) == (
        "AWS_SSM_START_SESSION_RESPONSE", "us-east-1", "StartSession", "",
    )  # fmt: skip
    assert json.loads(request) == wanted
    assert endpoint == target.endpoint
    assert answer["TokenValue"] not in " ".join(told["argv"])
    assert told["in"] == "SSH-2.0-test\n"


def test_an_instance_that_is_not_connected_is_refused(
    target: Target, instances: tuple[str, str]
) -> None:
    done = become(target, instances[1])
    assert done.returncode == 1
    assert done.stdout == ""
    assert (
        f"AWS refused StartSession: TargetNotConnected: {instances[1]} is not connected"
        in done.stderr
    )


def node(rank: int, instance: str) -> Node:
    return Node(
        rank=rank, name=f"node{rank}", instance_id=instance, private_ip="10.50.0.9", gpus=8, slots=8
    )


def test_nodes_are_waited_for_until_they_are_online(
    target: Target, instances: tuple[str, str]
) -> None:
    nodes = [node(0, instances[0]), node(1, instances[1])]

    async def main() -> None:
        agents = session_manager.Agents(client(target, "ssm"), nodes, patience_s=2)
        watching = asyncio.create_task(agents.watch())
        await agents.wait_until_online(nodes[0])
        try:
            await agents.wait_until_online(nodes[1])
        finally:
            watching.cancel()

    with pytest.raises(NodeError) as caught:
        asyncio.run(main())
    assert caught.value.message == (
        f"node1 ({instances[1]}) is not online in Session Manager after 0 min"
    )


def test_five_minutes_are_promised() -> None:
    docs = Path(__file__).parents[2] / "docs/do/network.md"
    assert "online in Session Manager, five minutes at most." in docs.read_text()
    assert session_manager.ONLINE_PATIENCE_S == 5 * 60
