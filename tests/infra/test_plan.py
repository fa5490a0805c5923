from typing import Any

from pulumi.automation import EngineEvent

from infra.stack.changes import Change, Plan, plan_of

VPC = "aws:ec2/vpc:Vpc"


def step(op: str, kind: str = VPC, **more: Any) -> EngineEvent:
    metadata = {"op": op, "urn": f"urn:pulumi:demo::gpuctl::{kind}::it", "type": kind, **more}
    return EngineEvent.from_json({"resourcePreEvent": {"metadata": metadata, "planning": True}})


def test_details_show_old_and_new_of_every_path() -> None:
    update = step(
        "update",
        old={"outputs": {"tags": {"a:b": "1"}, "routes": [{"gatewayId": "igw-1"}], "n": 1}},
        new={"inputs": {"tags": {"a:b": "2"}, "routes": [{"gatewayId": "igw-2"}]}},
        detailedDiff={
            'tags["a:b"]': {"diffKind": "update"},
            "routes[0].gatewayId": {"diffKind": "update-replace"},
            "n": {"diffKind": "delete"},
        },
    )
    assert plan_of([update]).changes == (
        Change(
            "update",
            VPC,
            "it",
            (
                "n: 1 -> (none)",
                'routes[0].gatewayId: "igw-1" -> "igw-2" (forces replacement)',
                'tags["a:b"]: "1" -> "2"',
            ),
        ),
    )


def test_a_long_value_is_cut() -> None:
    update = step(
        "update",
        old={"outputs": {"userData": "a" * 99}},
        new={"inputs": {"userData": "b" * 99}},
        detailedDiff={"userData": {"diffKind": "update"}},
    )
    [change] = plan_of([update]).changes
    assert change.details == (f'userData: "{"a" * 58}… -> "{"b" * 58}…',)


def test_what_exists_only_in_pulumi_is_not_shown() -> None:
    events = [step("create", "pulumi:pulumi:Stack"), step("create", "pulumi:providers:aws")]
    plan = plan_of([*events, step("same")])
    assert plan.counts == {"same": 1}
    assert plan.is_empty


def test_a_replacement_is_one_change_with_its_differences() -> None:
    replace = step(
        "replace",
        old={"outputs": {"cidrBlock": "a"}},
        new={"inputs": {"cidrBlock": "b"}},
        detailedDiff={"cidrBlock": {"diffKind": "update-replace"}},
    )
    plan = plan_of([step("delete-replaced"), replace, step("create-replacement")])
    assert plan.changes == (
        Change("replace", VPC, "it", ('cidrBlock: "a" -> "b" (forces replacement)',)),
    )


def test_an_address_that_moves_to_a_new_instance_changes_no_other_node() -> None:
    """Its node's instance is gone: the address has no instance until the new one exists."""
    instance, address = "aws:ec2/instance:Instance", "aws:ec2/eip:Eip"
    moves = (Change("create", instance, "node1"), Change("update", address, "node1"))
    assert Plan(moves).only_adds
    assert not Plan((moves[0], Change("update", address, "node0"))).only_adds
    assert not Plan((moves[0], Change("replace", address, "node1"))).only_adds
    assert not Plan((Change("same", instance, "node1"), moves[1])).only_adds
