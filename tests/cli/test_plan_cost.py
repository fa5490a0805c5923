"""What a plan says of its cost: per hour, for the lifetime, and where the prices are from."""

from dataclasses import replace

from cli.render.plan import cost_line, plan_json, plan_lines
from config.cluster.cluster_file import Cluster, Lifetime
from infra.stack.changes import Change, Op, Plan
from provision.billing.cost import hourly_usd
from provision.up import FleetPlan
from tests.cli.test_plan_text import P5, resolved


def fleet(price: float | None, lifetime: str | None = None) -> FleetPlan:
    cluster = Cluster(
        name="c",
        nodes=2,
        instance_type="p5.48xlarge",
        lifetime=Lifetime(max=lifetime) if lifetime else None,  # type: ignore[arg-type]
    )
    bare = resolved(2, P5)
    changes = {
        "cluster": cluster,
        "instance_type": bare.instance_type.model_copy(update={"price_usd_h": price}),
        "bastion_price_usd_h": 0.0208,
        "price_source": "AWS's price list of 2026-07-28, us-east-1",
        "warnings": ("the price could not be checked (AccessDenied: allow pricing:GetProducts)",),
    }
    whole = bare.model_copy(update=changes)
    return FleetPlan(whole, Plan(()), hourly_usd(whole))


def test_the_cost_per_hour_names_its_source() -> None:
    assert cost_line(fleet(55.04)) == (
        "Cost: $110.16 per hour (2 x p5.48xlarge $55.04, bastion $0.021, NAT gateway $0.045,"
        " 2 public addresses $0.010; on-demand, AWS's price list of 2026-07-28, us-east-1)."
    )


def test_a_price_that_is_not_known_is_not_invented() -> None:
    assert cost_line(fleet(None)) == (
        "Cost: unknown, p5.48xlarge has no price in AWS's price list of 2026-07-28, us-east-1."
    )


def with_nodes(**ops: Op) -> FleetPlan:
    changes = tuple(Change(op, "aws:ec2/instance:Instance", name) for name, op in ops.items())
    made = fleet(55.04)
    replaced = {name: "image changed" for name, op in ops.items() if op == "replace"}
    return FleetPlan(made.resolved, Plan(changes), made.hourly_usd, replaced)


NAT = Change("create", "aws:ec2/natGateway:NatGateway", "nat")
FSX = Change("create", "aws:fsx/lustreFileSystem:LustreFileSystem", "shared")


def test_the_nodes_cost_money_from_the_claim_of_their_capacity_on() -> None:
    whole = with_nodes(bastion="create", node0="create", node1="create")
    begin = "The new nodes' $110.08 per hour begins with the claim of capacity"
    assert plan_lines(whole)[-2] == f"{begin}, which comes first: nothing else takes minutes."
    slow = replace(whole, plan=Plan((*whole.plan.changes, NAT)))
    first = "what takes minutes comes first"
    assert plan_lines(slow)[-2] == f"{begin}; {first}: NAT gateway."
    slower = replace(whole, plan=Plan((*whole.plan.changes, FSX, NAT)))
    assert plan_lines(slower)[-2] == f"{begin}; {first}: NAT gateway, FSx file system."
    more = with_nodes(node0="same", node1="create")
    begin = "The new nodes' $55.04 per hour begins with the claim of capacity"
    assert plan_lines(more)[-2] == f"{begin}, which comes first: nothing else takes minutes."
    # The claim is kept while the file system is created: nodes run already.
    beside = replace(more, plan=Plan((*more.plan.changes, FSX)))
    assert plan_lines(beside)[-2] == f"{begin}."
    for nothing in (with_nodes(node0="same", node1="replace"), with_nodes(bastion="create")):
        assert plan_lines(nothing)[-2].startswith("Cost: ")


def test_the_lifetime_s_total_and_the_warnings_follow() -> None:
    assert plan_lines(fleet(55.04, "8h"))[-2:] == [
        "For all of lifetime.max (8h): $881.25.",
        "Warning: the price could not be checked (AccessDenied: allow pricing:GetProducts).",
    ]
    assert plan_lines(fleet(55.04))[-2].startswith("Cost: ")


def test_json_has_them_too() -> None:
    told = plan_json(fleet(55.04, "8h"))
    assert round(told["total_usd"], 2) == 881.25
    assert told["price_source"] == "AWS's price list of 2026-07-28, us-east-1"
    assert len(told["warnings"]) == 1
    assert plan_json(fleet(55.04))["total_usd"] is None
