"""The record's file, and how calls are summed up in it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from config.errors import InputError
from provision.aws.calls import Call, SeenState
from smoke.ladder import recorded_lines
from smoke.ladder_record import (
    StatesOfKind,
    StepRecord,
    add_step,
    lifecycles,
    operations,
    read_record,
    refusals,
)


def call(operation: str, at: float = 0.0, **fields: object) -> Call:
    return Call.model_validate(
        {"service": "ec2", "operation": operation, "at": at, "seconds": 1.0} | fields
    )


def taken(number: int = 1, **fields: object) -> StepRecord:
    known: dict[str, object] = {
        "step": number, "title": "a step", "where": "lab", "account": "123456789012",
        "region": "us-east-1", "began": datetime(2026, 11, 23, tzinfo=UTC), "seconds": 61.2,
        "outcome": "done", "price": None, "commands": (), "notes": (), "calls": (),
        "lifecycles": (), "refusals": (), "ids": (), "left": (), "differences": (),
    }  # fmt: skip
    return StepRecord.model_validate(known | fields)


def test_calls_are_summed_up_by_operation() -> None:
    found = operations(
        (
            call("DescribeVpcs", fields=("Vpcs", "Vpcs[].VpcId"), seconds=0.5),
            call("CreateVpc", code="VpcLimitExceeded", retries=2),
            call("DescribeVpcs", fields=("Vpcs",), seconds=2.0),
        )
    )
    assert [(one.name, one.count, one.is_answered) for one in found] == [
        ("ec2 CreateVpc", 1, False),
        ("ec2 DescribeVpcs", 2, True),
    ]
    assert (found[0].codes, found[0].retries) == ({"VpcLimitExceeded": 1}, 2)
    assert (found[1].seconds, found[1].longest_s) == (2.5, 2.0)
    assert found[1].fields == ("Vpcs", "Vpcs[].VpcId")


def test_states_are_those_passed_through_with_the_longest_times() -> None:
    def seen(at: float, id_: str, state: str) -> Call:
        states = (SeenState(kind="NatGateway State", id=id_, state=state),)
        return call("DescribeNatGateways", at, states=states)

    found = lifecycles(
        (
            seen(10, "nat-1", "pending"), seen(12, "nat-2", "pending"),
            seen(40, "nat-1", "pending"), seen(95, "nat-1", "available"),
            seen(99, "nat-2", "available"),
        )
    )  # fmt: skip
    assert found == (
        StatesOfKind(kind="NatGateway State", states={"pending": 87.0, "available": None}),
    )


def test_a_dry_run_that_is_allowed_is_no_refusal() -> None:
    found = refusals(
        (
            call("CreateVpc", code="DryRunOperation", message="Request would have succeeded"),
            call("RunInstances", code="Unsupported", message="no"),
            call("RunInstances", code="Unsupported", message="no"),
        )
    )
    assert [(one.operation, one.code, one.message) for one in found] == [
        ("RunInstances", "Unsupported", "no")
    ]


def test_a_step_is_appended_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "aws-smoke.json"
    add_step(path, taken(1))
    add_step(path, taken(3))
    add_step(path, taken(3, outcome="interrupted"))
    record = read_record(path)
    assert [(one.step, one.outcome) for one in record.steps] == [
        (1, "done"), (3, "done"), (3, "interrupted"),
    ]  # fmt: skip
    assert record.not_recorded.startswith("the calls of Pulumi's AWS provider")
    assert [file.name for file in tmp_path.iterdir()] == ["aws-smoke.json"]


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    hint = "; name another file with --record or --against"
    with pytest.raises(InputError) as absent:
        read_record(path)
    assert str(absent.value) == f"{path}: cannot be read: No such file or directory{hint}"
    path.write_text("notes")
    with pytest.raises(InputError) as other:
        read_record(path)
    assert str(other.value) == f"{path}: is no record of aws-smoke{hint}"


def test_the_lines_about_a_record() -> None:
    calls = operations((call("A"), call("A"), call("B")))
    path = Path("aws-smoke.json")
    one = taken(2, calls=calls, differences=("ec2 A: is not in the lab's record",))
    assert list(recorded_lines(one, path, compared=True)) == [
        "-- step 2 took 61 s and 3 calls: aws-smoke.json",
        "-- 1 difference from the lab's answers",
        "   ec2 A: is not in the lab's record",
    ]
    assert list(recorded_lines(one, path, compared=False)) == [
        "-- step 2 took 61 s and 3 calls: aws-smoke.json"
    ]
    many = taken(2, differences=tuple(f"line {number}" for number in range(22)))
    lines = list(recorded_lines(many, path, compared=True))
    assert (len(lines), lines[-2:]) == (23, ["   line 19", "   … and 2 more in the record"])
