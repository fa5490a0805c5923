"""Machines that never boot, that AWS takes back, and others that hold a placement group.

Nothing boots: the console that the API shows is written here, and ssh is left out.
"""

from typing import Any

import pytest

from config.cluster.cluster_file import Cluster
from config.errors import BrokenNodes, CloudError
from config.progress import Progress, silent
from config.target import Target
from infra.stack.installation import Engine
from lab import fault_kinds, fault_table
from nodes.inventory import Inventory, Node
from nodes.keys import generate_pair
from provision import up as life
from provision.aws.clients import client as aws_client
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.aws.resources import find_all
from provision.down import down
from provision.healing import replace_nodes
from provision.removal import sweep as removal
from provision.setup import bootstrap as booting
from provision.state.host_keys import BootWatch
from provision.state.store import ClusterStore
from tests.infra.region import Region, client
from tests.infra.somebodys_network import SomebodysNetwork

pytestmark = [pytest.mark.engine, pytest.mark.thorough]

KEY = " ".join(generate_pair("root@host")[1].split()[:2])
CONSOLE = f"-----BEGIN SSH HOST KEY KEYS-----\n{KEY} root@host\n-----END SSH HOST KEY KEYS-----\n"


def up(target: Target, report: Any = silent, **capacity: Any) -> Inventory:
    fields = {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge", "capacity": capacity}
    plan = life.plan(Cluster.model_validate(fields), target, silent)
    return life.up(plan, target, report)


class Consoles:
    """Each machine's console has its host key but those of the first `dead` machines of node1."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dead: int) -> None:
        self.launched: list[str] = []
        self._dead = dead
        monkeypatch.setattr(booting, "boot_limit_s", lambda _: 0)
        monkeypatch.setattr(booting, "_set_up", self._set_up)
        monkeypatch.setattr(booting, "add_topology", lambda *told: told[2])
        monkeypatch.setattr(BootWatch, "_console_output", lambda _, one: self._read(one))

    async def _set_up(
        self, inventory: Inventory, _: object, boot: booting.Boot, __: object
    ) -> tuple[Node, ...]:
        if inventory.nodes[1].instance_id not in self.launched:
            self.launched.append(inventory.nodes[1].instance_id)
        for node in inventory.nodes:
            await boot.watch.wait_for_host_key(node.name)
        return inventory.nodes

    def _read(self, instance_id: str) -> str:
        return "" if instance_id in self.launched[: self._dead] else CONSOLE


def test_a_machine_that_never_boots_is_replaced_or_everything_is_removed(
    here: Region, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    del engine  # it exists
    told: list[Progress] = []
    consoles = Consoles(monkeypatch, dead=1)
    ready = up(here.target, told.append, spare_attempts=1)
    first, second = consoles.launched
    assert [(one.state, one.detail) for one in told if one.stage == "spare"] == [
        ("running", f"replaces {first}: did not boot within 0 min"),
        ("done", f"replaces {first}"),
    ]
    assert ready.nodes[1].instance_id == second
    down("demo", here.target, silent)

    consoles = Consoles(monkeypatch, dead=2)
    with pytest.raises(BrokenNodes) as caught:
        up(here.target, spare_attempts=1)
    assert caught.value.message.startswith("node1 (10.")
    assert caught.value.message.endswith(") did not boot within 0 min")
    assert caught.value.hint.splitlines()[-2:] == [
        "node1 cannot be replaced: 1 was replaced before, and capacity.spare_attempts is 1",
        "nothing of it is left",
    ]
    assert len(consoles.launched) == 2
    assert find_all(here.target, "demo") == []
    assert ClusterStore(here.target).record("demo") is None


def nothing_to_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    Consoles(monkeypatch, dead=0)


def test_a_node_that_aws_took_back_is_healed_and_no_other(
    here: Region, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    del engine  # it exists
    nothing_to_set_up(monkeypatch)
    made = up(here.target, type="spot")
    lost = made.nodes[1]
    take_back(here, lost.instance_id)
    told: list[Progress] = []
    healed = replace_nodes("demo", [lost], here.target, told.append)
    ids = [node.instance_id for node in healed.nodes]
    assert ids[0] == made.nodes[0].instance_id
    assert ids[1] != lost.instance_id
    assert [node.name for node in ClusterStore(here.target).inventory("demo").nodes] == [
        "node0",
        "node1",
    ]
    ec2 = client(here.target)
    (found,) = ec2.describe_instances(InstanceIds=[ids[1]])["Reservations"]
    (new,) = found["Instances"]
    assert (new["InstanceLifecycle"], new["Placement"]["GroupName"]) == ("spot", "gpuctl-demo")
    down("demo", here.target, silent)
    assert find_all(here.target, "demo") == []


def take_back(here: Region, instance_id: str) -> None:
    """Return when AWS has taken the instance back, with a notice that is over at once."""
    given = fault_kinds.parse("spot-interruption", (instance_id, "0"))
    fault_table.write(here.faults, {"spot-interruption": given})
    ec2 = client(here.target)
    ec2.get_waiter("instance_terminated").wait(
        InstanceIds=[instance_id], WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    (found,) = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
    assert found["Instances"][0]["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    here.faults.unlink()


def test_a_placement_group_in_use_is_named_tried_again_and_removed_once_it_is_free(
    here: Region, engine: Engine, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's machine is in the group: Pulumi's destroy fails, and all else goes."""
    del engine  # it exists
    nothing_to_set_up(monkeypatch)
    up(here.target)
    ec2 = client(here.target)
    guest = ec2.run_instances(
        ImageId=image_id(aws_client(here.target, "ssm"), BASTION_IMAGE),
        InstanceType="c5.large", MinCount=1, MaxCount=1,
        SubnetId=SomebodysNetwork.make(ec2).subnet("10.40.0.0/24"),
        Placement={"GroupName": "gpuctl-demo"},
    )["Instances"][0]["InstanceId"]  # fmt: skip
    told: list[Progress] = []
    with pytest.raises(CloudError) as caught:
        down("demo", here.target, told.append)
    assert str(caught.value) == (
        "AWS refused DeletePlacementGroup: InvalidPlacementGroup.InUse: The placement group"
        " 'gpuctl-demo' is in use and may not be deleted; end the instances that others launched in"
        " the placement group, then repeat"
    )
    assert pauses.count(removal.PAUSE_S) == removal.RETRIES - 1
    assert [one.kind for one in find_all(here.target, "demo")] == ["placement group"]

    def end_guest(_: float) -> None:
        ec2.terminate_instances(InstanceIds=[guest])

    monkeypatch.setattr("time.sleep", end_guest)
    removed = down("demo", here.target, silent).removed
    assert removed == ("placement group gpuctl-demo",)
    assert find_all(here.target, "demo") == []
    assert ClusterStore(here.target).record("demo") is None
