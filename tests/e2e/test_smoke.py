"""The ladder of `make aws-smoke` in the lab: steps 1 to 3 whole, and Ctrl-C in step 4.

Step 4 is interrupted while its machines boot: what its run and the later steps do, `tests/smoke`
checks without machines, and `smoke/lab.json` is the record of a whole ladder.
"""

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from lab import state
from smoke.__main__ import LAB_ANSWERS
from smoke.ladder_record import LadderRecord, StepRecord, read_record
from tests.e2e.conftest import ROOT, Gpuctl
from tests.e2e.region import what_bills
from tests.evidence import note
from tests.interrupts import INTERRUPTIBLE

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

PLANTED = (
    "ec2 DescribeVpcs: only this answer has Vpcs[].CidrBlock",
    "ec2 DescribeVpcs: only the lab's answer has Vpcs[].Planted",
    "ec2 CreateCapacityReservation: refused with DryRunOperation, in the lab never",
    "NatGateway State: was available, in the lab never",
)


def planted(step: StepRecord) -> StepRecord:
    """The step, had the lab answered otherwise in the ways of `PLANTED`."""
    calls = []
    for call in step.calls:
        fields = [field for field in call.fields if field != "Vpcs[].CidrBlock"]
        if call.operation == "DescribeVpcs" and step.step == 3:
            fields.append("Vpcs[].Planted")
        changed: dict[str, object] = {"fields": tuple(fields)}
        if call.operation == "CreateCapacityReservation":
            changed["codes"] = {}
        calls.append(call.model_copy(update=changed))
    kinds = []
    for one in step.lifecycles:
        states = {state: s for state, s in one.states.items() if state != "available"}
        is_nat = one.kind == "NatGateway State"
        kinds.append(
            one.model_copy(update={"states": states or {"failed": None}} if is_nat else {})
        )
    return step.model_copy(update={"calls": tuple(calls), "lifecycles": tuple(kinds)})


def read_until(output: IO[bytes], text: str) -> str:
    """What is printed up to the text, which may be a question without a line's end."""
    seen = b""
    while text.encode() not in seen:
        piece = os.read(output.fileno(), 4096)
        assert piece, f"no {text!r} in:\n{seen.decode()}"
        seen += piece
    note(seen.decode())
    return seen.decode()


def test_steps_are_asked_for_taken_recorded_and_leave_nothing(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    gpuctl = replace(gpuctl, home=tmp_path / "home")  # others leave their files in the lab's
    record, other = tmp_path / "aws-smoke.json", tmp_path / "planted.json"
    known = read_record(LAB_ANSWERS)
    other.write_text(LadderRecord(steps=tuple(map(planted, known.steps))).model_dump_json())
    terminal, answers = os.openpty()
    options = ["--yes-up-to", "2", "--record", str(record), "--against", str(other)]
    with subprocess.Popen(
        [*INTERRUPTIBLE, "scripts/aws-smoke", *gpuctl.lab.options, *options],
        env=gpuctl.environment,
        cwd=ROOT,
        stdin=answers,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as ladder:
        os.close(answers)
        assert ladder.stdout is not None
        try:
            begun = read_until(ladder.stdout, "Go on with step 3? [y/N] ")
            assert "It costs about $0.02: 10 minutes at $0.12 per hour (AWS's price list" in begun
            os.write(terminal, b"y\n")
            first = read_until(ladder.stdout, "Go on with step 4? [y/N] ")
            os.write(terminal, b"y\n")
            read_until(ladder.stdout, "boot: ")
            os.killpg(ladder.pid, signal.SIGINT)
            last = ladder.stdout.read().decode()
            note(last)
        finally:
            ladder.kill() if ladder.poll() is None else None
            os.close(terminal)
    assert ladder.returncode == 130, last
    assert "aws-smoke: interrupted: removing cluster smoke-efa" in last
    assert "aws-smoke: step 4: interrupted" in last
    assert f"go on with: scripts/aws-smoke {' '.join(gpuctl.lab.options)} --from 4" in last
    check_first_cluster(gpuctl, first)
    check_record(gpuctl, record)
    for cluster in ("smoke", "smoke-efa"):
        assert what_bills(gpuctl, cluster) == {}
    kept = [path for path in gpuctl.state.rglob("*") if not path.is_symlink()]
    assert [path for path in kept if path.stat().st_mode & 0o077] == []
    # The history of runs is kept on purpose, and so are the keys of the p4d: it was only planned.
    ours = [path.relative_to(gpuctl.state) for path in kept if "smoke" in path.name]
    ended = [path for path in ours if "runs" not in path.parts and "smoke-p4d" not in str(path)]
    assert ended == []


def check_first_cluster(gpuctl: Gpuctl, output: str) -> None:
    """Step 3 did what it is for."""
    for rank in (0, 1):
        assert f"rank {rank} of 2 on ip-" in output
    assert output.count("reached 10.213.") == 4
    for line in (
        "-- a second `up` found nothing to change",
        "-- the client of a running job was killed with SIGKILL",
        "-- nothing has the tag of cluster smoke",
    ):
        assert line in output
    for line in PLANTED[:2]:
        assert f"   {line}" in output


def check_record(gpuctl: Gpuctl, path: Path) -> None:
    """The record has what the steps did, every planted difference, and no secret."""
    steps = read_record(path).steps
    assert [(one.step, one.outcome) for one in steps] == [
        (1, "done"), (2, "done"), (3, "done"), (4, "interrupted"),
    ]  # fmt: skip
    found = {line for one in steps for line in one.differences}
    assert set(PLANTED) <= found
    third = steps[2]
    assert (third.where, third.left, third.refusals) == ("lab", (), ())
    assert sum(one.startswith("instance i-") for one in third.ids) == 3
    assert [(one.words.split()[-2:], one.exit_code) for one in third.commands[-4:]] == [
        (["--cluster", "smoke"], 0),
        (["--cluster", "smoke"], -9),
        (["smoke", "--yes"], 0),
        (["status", "--json"], 0),
    ]
    assert "ec2 CreateCapacityReservation" in {call.name for call in third.calls}
    lab = state.record(gpuctl.lab)
    assert lab and lab.key.secret not in path.read_text()
    assert lab.key.key_id not in path.read_text()
