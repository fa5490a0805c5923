"""What a plan says of its cost: per hour, for the lifetime, and where the prices are from."""

from cli.plan_text import cost_line, plan_json, plan_lines
from config.cluster.cluster_file import Cluster, Lifetime
from infra.stack.changes import Plan
from provision.costs.cost import hourly_usd
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
