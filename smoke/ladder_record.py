"""The record of the steps: calls to AWS, its answers, times, and what was left."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from config.errors import InputError
from config.models import Value
from provision.aws.calls import Call

NOT_RECORDED = (
    "the calls of Pulumi's AWS provider (CloudTrail has them), and the values of requests and"
    " answers, except the states and ids of the cluster's resources"
)
"""The parts that no record has: a reader must not take them for calls that were not made."""


class Operation(Value):
    """All calls of an operation in a step; `codes` counts AWS's refusals by code.

    `fields` are the names of the answers' fields, `sent` those of the requests'.
    """

    service: str
    operation: str
    count: int
    seconds: float
    longest_s: float
    retries: int
    codes: dict[str, int]
    fields: tuple[str, ...]
    sent: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The operation's name with its service: `ec2 RunInstances`."""
        return f"{self.service} {self.operation}"

    @property
    def is_answered(self) -> bool:
        """Return whether AWS answered at least one of the calls."""
        return self.count > sum(self.codes.values())


class StatesOfKind(Value):
    """The states in which resources of a kind were seen, in order of the first sight.

    Each state has the longest time in seconds until a resource was seen in the next one; it is None
    if no resource was seen to leave the state.
    """

    kind: str
    states: dict[str, float | None]


class RefusedCall(Value):
    """A refusal of AWS; the same one is recorded once."""

    service: str
    operation: str
    code: str
    message: str


class StepCommand(Value):
    """A gpuctl command of a step."""

    words: str
    seconds: float
    exit_code: int


class StepPrice(Value):
    """The price that was shown before the step began, in dollars."""

    usd_h: float | None
    about_usd: float | None
    most_usd: float | None
    source: str


class StepRecord(Value):
    """One step that ran, in AWS or in a lab.

    `outcome` is `done`, `interrupted`, or the reason of the failure. `versions` are those of this
    machine's software and of the nodes'. `notes` are its findings, `ids` the resources that had the
    cluster's tag, `left` those that were left at the end.
    """

    step: int
    title: str
    where: Literal["aws", "lab"]
    account: str
    region: str
    began: datetime
    seconds: float
    outcome: str
    versions: dict[str, str] = Field(default={})
    price: StepPrice | None
    commands: tuple[StepCommand, ...]
    notes: tuple[str, ...]
    calls: tuple[Operation, ...]
    lifecycles: tuple[StatesOfKind, ...]
    refusals: tuple[RefusedCall, ...]
    ids: tuple[str, ...]
    left: tuple[str, ...]
    differences: tuple[str, ...]


class LadderRecord(Value):
    """The file: steps in the order in which they ran; a step that ran twice is there twice."""

    not_recorded: str = NOT_RECORDED
    steps: tuple[StepRecord, ...] = ()


def read_record(path: Path) -> LadderRecord:
    """Return the record of the file; InputError if it cannot be read, or is none."""
    hint = "name another file with --record or --against"
    try:
        return LadderRecord.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", hint) from None
    except ValidationError:
        raise InputError(f"{path}: is no record of aws-smoke", hint) from None


def add_step(path: Path, step: StepRecord) -> None:
    """Append the step to the record; the file is complete or as before, also after a crash."""
    before = read_record(path) if path.exists() else LadderRecord()
    after = LadderRecord(steps=(*before.steps, step))
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(after.model_dump_json(indent=1) + "\n")
    os.replace(draft, path)  # noqa: PTH105  (atomic)


def read_calls(path: Path) -> tuple[Call, ...]:
    """Return the calls that processes have recorded so far, in order of their answers."""
    if not path.exists():
        return ()
    return tuple(Call.model_validate_json(line) for line in path.read_text().splitlines())


def operations(calls: Iterable[Call]) -> tuple[Operation, ...]:
    """Return the calls, summed up by operation, in alphabetic order."""
    groups = defaultdict[tuple[str, str], list[Call]](list)
    for call in calls:
        groups[call.service, call.operation].append(call)
    return tuple(_operation(groups[key]) for key in sorted(groups))


def _operation(calls: Sequence[Call]) -> Operation:
    codes = defaultdict[str, int](int)
    for call in calls:
        if call.code:
            codes[call.code] += 1
    return Operation(
        service=calls[0].service,
        operation=calls[0].operation,
        count=len(calls),
        seconds=round(sum(call.seconds for call in calls), 3),
        longest_s=max(call.seconds for call in calls),
        retries=sum(call.retries for call in calls),
        codes=dict(sorted(codes.items())),
        fields=tuple(sorted({field for call in calls for field in call.fields})),
        sent=tuple(sorted({field for call in calls for field in call.sent})),
    )


def refusals(calls: Iterable[Call]) -> tuple[RefusedCall, ...]:
    """Return each refusal once, in order of the first; a dry run that is allowed is none."""
    calls_refused = dict.fromkeys(
        (call.service, call.operation, call.code, call.message)
        for call in calls
        if call.code not in ("", "DryRunOperation")
    )
    return tuple(
        RefusedCall(service=service, operation=operation, code=code, message=message)
        for service, operation, code, message in calls_refused
    )


def lifecycles(calls: Iterable[Call]) -> tuple[StatesOfKind, ...]:
    """Return the states that resources were seen in, by kind."""
    seen = defaultdict[tuple[str, str], dict[str, float]](dict)
    for call in sorted(calls, key=lambda call: call.at):
        for seen_state in call.states:
            seen[seen_state.kind, seen_state.id].setdefault(seen_state.state, call.at)
    kinds = defaultdict[str, dict[str, float | None]](dict)
    for (kind, _), states in seen.items():
        for state, left in _durations(states).items():
            before = kinds[kind].setdefault(state, left)
            if left is not None and (before is None or left > before):
                kinds[kind][state] = left
    return tuple(StatesOfKind(kind=kind, states=kinds[kind]) for kind in sorted(kinds))


def _durations(states: dict[str, float]) -> dict[str, float | None]:
    """Return the time from the first sight of each state to that of the next one."""
    times = list(states.values())
    spans = [round(after - before, 1) for before, after in pairwise(times)]
    return dict(zip(states, [*spans, None], strict=True))
