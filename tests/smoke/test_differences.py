"""Differences from the lab's answers: each kind is named, and nothing is named twice."""

import pytest

from smoke.__main__ import LAB_ANSWERS
from smoke.differences import differences
from smoke.ladder_record import Operation, StatesOfKind, StepRecord, read_record
from tests.smoke.test_ladder_record import taken


def operation(name: str, **fields: object) -> Operation:
    known: dict[str, object] = {
        "service": "ec2", "operation": name, "count": 1, "seconds": 0.1, "longest_s": 0.1,
        "retries": 0, "codes": {}, "fields": (),
    }  # fmt: skip
    return Operation.model_validate(known | fields)


def against(*lab: StepRecord, **here: object) -> tuple[str, ...]:
    step = taken(3, **here)
    return differences(step.step, step.calls, step.lifecycles, lab)


def test_the_same_answers_have_no_difference() -> None:
    same = {
        "calls": (operation("DescribeVpcs", fields=("Vpcs",), codes={"Unsupported": 1}, count=2),),
        "lifecycles": (StatesOfKind(kind="Vpc State", states={"pending": 3.0, "available": None}),),
    }
    assert against(taken(3, **same), **same) == ()


def test_without_a_record_of_the_lab_nothing_is_compared() -> None:
    assert against(calls=(operation("DescribeVpcs"),)) == ()


def test_an_operation_that_the_lab_never_had() -> None:
    assert against(taken(3), calls=(operation("DescribeFleets"),)) == (
        "ec2 DescribeFleets: is not in the lab's record",
    )


def test_fields_are_named_once_without_those_below_them() -> None:
    lab = operation("DescribeVpcs", fields=("Vpcs", "Vpcs[].Old", "Vpcs[].Older"))
    here = operation(
        "DescribeVpcs", fields=("Vpcs", "Vpcs[].New", "Vpcs[].New.State", "Vpcs[].Newer[].Name",
                                "Vpcs[].Newer"),
    )  # fmt: skip
    assert against(taken(3, calls=(lab,)), calls=(here,)) == (
        "ec2 DescribeVpcs: only this answer has Vpcs[].New, Vpcs[].Newer",
        "ec2 DescribeVpcs: only the lab's answer has Vpcs[].Old, Vpcs[].Older",
    )


def test_a_field_of_another_step_of_the_lab_is_not_missing() -> None:
    with_vpcs = taken(4, calls=(operation("DescribeVpcs", fields=("Vpcs", "Vpcs[].VpcId")),))
    empty = taken(3, calls=(operation("DescribeVpcs", fields=("Vpcs",)),))
    assert against(with_vpcs, empty, calls=empty.calls) == ()
    assert against(with_vpcs, empty, calls=with_vpcs.calls) == ()


def test_a_refusal_that_the_lab_never_gave() -> None:
    lab = taken(3, calls=(operation("RunInstances"),))
    here = operation("RunInstances", count=2, codes={"Unsupported": 1})
    assert against(lab, calls=(here,)) == (
        "ec2 RunInstances: refused with Unsupported, in the lab never",
    )


def test_an_operation_that_only_one_side_answers() -> None:
    refused = operation("CreateVpc", codes={"DryRunOperation": 1})
    twice = operation("CreateVpc", codes={"DryRunOperation": 1, "Unsupported": 1}, count=2)
    answered = operation("CreateVpc")
    assert against(taken(3, calls=(refused,)), calls=(answered,)) == (
        "ec2 CreateVpc: answered, in the lab always refused with DryRunOperation",
    )
    assert against(taken(3, calls=(twice,)), calls=(answered,)) == (
        "ec2 CreateVpc: answered, in the lab always refused with DryRunOperation, Unsupported",
    )
    assert against(taken(3, calls=(twice,)), calls=(refused,)) == ()
    assert against(taken(3, calls=(answered,)), calls=(refused,)) == (
        "ec2 CreateVpc: refused with DryRunOperation, in the lab never",
        "ec2 CreateVpc: never answered, in the lab answered",
    )


@pytest.mark.parametrize(
    ("in_the_lab", "here", "differs"),
    [
        (0.5, 5.4, False),
        (0.5, 5.6, True),
        (1.0, 6.0, True),
        (10.0, 39.0, False),
        (10.0, 40.0, True),
    ],
)
def test_a_time_is_a_difference_from_four_times_and_five_seconds_on(
    in_the_lab: float, here: float, differs: bool
) -> None:
    lab = taken(3, calls=(operation("RunInstances", longest_s=in_the_lab),))
    text = f"ec2 RunInstances: took {here} s, in the lab {in_the_lab} s at most"
    found = against(lab, calls=(operation("RunInstances", longest_s=here),))
    assert found == ((text,) if differs else ())


def test_states_that_the_lab_never_had_or_left_sooner() -> None:
    lab = StatesOfKind(kind="NatGateway State", states={"pending": 2.0, "available": None})
    here = StatesOfKind(kind="NatGateway State", states={"pending": 95.0, "deleting": None})
    other = StatesOfKind(kind="Vpc State", states={"available": None})
    assert against(taken(3, lifecycles=(lab,)), lifecycles=(here, other)) == (
        "NatGateway State: pending for 95 s, in the lab 2 s",
        "NatGateway State: was deleting, in the lab never",
        "Vpc State: is not in the lab's record",
    )


def test_a_state_that_the_lab_never_left_has_no_time_to_compare_with() -> None:
    lab = StatesOfKind(kind="Instance State.Name", states={"running": None})
    here = StatesOfKind(kind="Instance State.Name", states={"running": 600.0})
    assert against(taken(3, lifecycles=(lab,)), lifecycles=(here,)) == ()
    assert against(taken(3, lifecycles=(here,)), lifecycles=(lab,)) == ()


def test_the_lab_s_record_is_of_the_whole_ladder_and_agrees_with_itself() -> None:
    steps = read_record(LAB_ANSWERS).steps
    assert [(one.step, one.where, one.outcome, one.left) for one in steps] == [
        (number, "lab", "done", ()) for number in range(1, 7)
    ]
    for one in steps:
        assert differences(one.step, one.calls, one.lifecycles, steps) == ()
