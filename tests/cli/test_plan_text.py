"""The text of a plan: layouts folded, counts, the whole fleet's cost."""

import pytest

from cli.render.plan import (
    capacity_line,
    existing_lines,
    network_lines,
    older_lines,
    plan_json,
    plan_lines,
    replaced_lines,
)
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import ExistingNetwork, Image, InstanceType, Interface, Resolved
from infra.stack.changes import Plan
from provision.preflight.replacements import OlderSettings
from provision.up import FleetPlan


def resolved(nodes: int, interfaces: tuple[Interface, ...]) -> Resolved:
    """A resolved cluster with that layout; the rest is of no matter here."""
    image = Image(id="ami-1", name="i", root_device="/dev/sda1", architecture="x86_64")
    kind = InstanceType(
        name="p5.48xlarge",
        vcpus=192,
        memory_mib=1,
        gpus=8,
        gpu_model="H100",
        architecture="x86_64",
        max_efa=32,
        cards=(),
    )
    return Resolved(
        cluster=Cluster(name="c", nodes=nodes, instance_type="p5.48xlarge"),
        account="1",
        region="us-east-1",
        zone="us-east-1a",
        instance_type=kind,
        interfaces=interfaces,
        image=image,
        bastion_type="t3.small",
        bastion_image=image,
        bastion_price_usd_h=None,
        nat_price_usd_h=0.045,
        ssh_from="198.51.100.7/32",
        public_key="",
        nodes_public_key="",
        user_data="",
        bastion_user_data="",
        tags={},
    )


P5 = (
    Interface(card=0, device=0, type="interface"),
    Interface(card=0, device=1, type="efa-only"),
    *(Interface(card=card, device=0, type="efa-only") for card in range(1, 32)),
)


@pytest.mark.parametrize(
    ("nodes", "who"), [(1, "node0"), (2, "node0 … node1, each"), (9, "node0 … node8, each")]
)
def test_a_p5s_32_efa_interfaces_are_three_lines(nodes: int, who: str) -> None:
    assert network_lines(resolved(nodes, P5)) == [
        f"Network of {who}: 32 EFA interfaces, 32 network cards",
        "  card 0      device 0  interface",
        "  card 0      device 1  efa-only",
        "  cards 1-31  device 0  efa-only",
    ]


def test_the_plan_says_which_zones_may_take_the_cluster() -> None:
    one = resolved(2, P5)
    assert capacity_line(one) == "Capacity: on-demand, in us-east-1a"
    several = one.model_copy(update={"zones": ("us-east-1a", "us-east-1c")})
    assert capacity_line(several) == (
        "Capacity: on-demand, all or none, in the first with room of us-east-1a, us-east-1c"
    )


@pytest.mark.parametrize(
    ("attempts", "what"), [(1, "machine that fails"), (3, "machines that fail")]
)
def test_the_plan_says_how_many_machines_up_may_replace(attempts: int, what: str) -> None:
    one = resolved(2, P5)
    capacity = one.cluster.capacity.model_copy(update={"spare_attempts": attempts})
    cluster = one.cluster.model_copy(update={"capacity": capacity})
    assert capacity_line(one.model_copy(update={"cluster": cluster})) == (
        f"Capacity: on-demand, in us-east-1a; `up` replaces at most {attempts} {what}"
    )


def test_the_plan_names_the_subnets_of_a_network_that_exists() -> None:
    own = resolved(2, P5)
    assert existing_lines(own) == []
    theirs = ExistingNetwork(
        vpc="vpc-0a",
        subnets={"us-east-1a": "subnet-0a", "us-east-1c": "subnet-0c"},
        bastion_subnet="subnet-0b",
    )
    zones = ("us-east-1c", "us-east-1a")
    inside = own.model_copy(update={"existing_network": theirs, "zones": zones})
    assert existing_lines(inside) == [
        "Network: vpc-0a, which exists; the nodes in subnet-0c (us-east-1c) or subnet-0a"
        " (us-east-1a), the bastion in subnet-0b"
    ]


def test_the_plan_says_why_nodes_are_replaced() -> None:
    why = {"node0": "image changed", "node1": "image changed", "bastion": "lifetime changed"}
    fleet = FleetPlan(resolved(2, P5), Plan(()), None, why)
    assert replaced_lines(fleet) == [
        "node[0-1] are replaced: image changed",
        "bastion is replaced: lifetime changed",
    ]
    assert set(replaced_lines(fleet)) <= set(plan_lines(fleet))
    assert plan_json(fleet)["replaced"] == why
    assert replaced_lines(FleetPlan(resolved(2, P5), Plan(()), None)) == []


def test_the_plan_names_nodes_with_older_settings() -> None:
    image = OlderSettings("image changed", may_stay=True)
    older = {
        "node0": image,
        "node1": image,
        "node2": OlderSettings("setup.files changed", may_stay=True),
    }
    fleet = FleetPlan(resolved(3, P5), Plan(()), None, {"node1": "--replace names it"}, older)
    assert older_lines(fleet) == [
        "node0 keeps older settings: image changed",
        "node2 keeps older settings: setup.files changed",
        "`gpuctl up` makes a new machine of a node that --replace names (or `all`): what is on the"
        " disks is then lost.",
    ]
    assert set(older_lines(fleet)) <= set(plan_lines(fleet))
    assert plan_json(fleet)["older"] == {"node0": "image changed", "node2": "setup.files changed"}
    assert older_lines(FleetPlan(resolved(2, P5), Plan(()), None)) == []


def test_the_plan_names_nodes_that_cannot_stay() -> None:
    other = OlderSettings("instance_type changed", may_stay=False)
    fleet = FleetPlan(resolved(2, P5), Plan(()), None, {}, {"node0": other, "node1": other})
    assert older_lines(fleet) == [
        "node[0-1] cannot stay as they are: instance_type changed",
        "`gpuctl up` needs --replace all: what is on the disks is then lost.",
    ]
