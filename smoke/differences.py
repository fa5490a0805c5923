"""The differences between AWS's answers and the lab's, by operation and by kind of resource."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from smoke.ladder_record import Operation, StatesOfKind, StepRecord

TIMES_SLOWER = 4
LEAST_S = 5.0
"""A time is a difference from four times the lab's on, and from 5 s more: the lab is quick."""


@dataclass
class _Answers:
    """All that is known of an operation from several steps."""

    fields: set[str] = field(default_factory=set)
    codes: set[str] = field(default_factory=set)
    longest_s: float = 0.0
    answered: bool = False


def differences(
    number: int,
    calls: Sequence[Operation],
    lifecycles: Sequence[StatesOfKind],
    lab: Sequence[StepRecord],
) -> tuple[str, ...]:
    """Return a line for each difference from the lab's steps, first of operations, then of states.

    A field, refusal or state is new if no step of the lab had it. A field is missing if the lab's
    step of this number had it. A field below one that is named is not named again. Without any
    step of the lab there is nothing to compare with.
    """
    if not lab:
        return ()
    known = _answers(lab)
    same = _answers([step for step in lab if step.step == number])
    lines = [line for call in calls for line in _of_operation(call, known, same)]
    return (*lines, *_of_states(lifecycles, lab))


def _answers(steps: Iterable[StepRecord]) -> dict[str, _Answers]:
    known = defaultdict[str, _Answers](_Answers)
    for call in (call for step in steps for call in step.calls):
        answers = known[call.name]
        answers.fields |= set(call.fields)
        answers.codes |= set(call.codes)
        answers.longest_s = max(answers.longest_s, call.longest_s)
        answers.answered |= call.is_answered
    return dict(known)


def _of_operation(
    call: Operation, known: dict[str, _Answers], same: dict[str, _Answers]
) -> Iterator[str]:
    if call.name not in known:
        yield f"{call.name}: is not in the lab's record"
        return
    lab = known[call.name]
    for code in sorted(set(call.codes) - lab.codes):
        yield f"{call.name}: refused with {code}, in the lab never"
    if call.is_answered and not lab.answered:
        codes = ", ".join(sorted(lab.codes))
        yield f"{call.name}: answered, in the lab always refused with {codes}"
    elif not call.is_answered and call.name in same and same[call.name].answered:
        yield f"{call.name}: never answered, in the lab answered"
    elif call.is_answered:
        if only_here := _topmost(set(call.fields) - lab.fields):
            yield f"{call.name}: only this answer has {', '.join(only_here)}"
        expected = same[call.name].fields if call.name in same else set[str]()
        if only_lab := _topmost(expected - set(call.fields)):
            yield f"{call.name}: only the lab's answer has {', '.join(only_lab)}"
    if _is_slower(call.longest_s, lab.longest_s):
        yield f"{call.name}: took {call.longest_s:.1f} s, in the lab {lab.longest_s:.1f} s at most"


def _topmost(fields: set[str]) -> list[str]:
    """Return the fields without those below another one of them."""
    return sorted(
        name
        for name in fields
        if not any(name.startswith((f"{other}.", f"{other}[")) for other in fields)
    )


def _is_slower(real: float, lab: float) -> bool:
    return real - lab >= LEAST_S and real >= TIMES_SLOWER * lab


def _of_states(lifecycles: Sequence[StatesOfKind], lab: Sequence[StepRecord]) -> Iterator[str]:
    known = defaultdict[str, dict[str, float | None]](dict)
    for of_lab in (lifecycle for step in lab for lifecycle in step.lifecycles):
        for state, seconds in of_lab.states.items():
            before = known[of_lab.kind].get(state)
            known[of_lab.kind][state] = max(filter(None, (before, seconds)), default=None)
    for lifecycle in lifecycles:
        if lifecycle.kind not in known:
            yield f"{lifecycle.kind}: is not in the lab's record"
            continue
        for state, seconds in lifecycle.states.items():
            before = known[lifecycle.kind].get(state)
            if state not in known[lifecycle.kind]:
                yield f"{lifecycle.kind}: was {state}, in the lab never"
            elif seconds is not None and before is not None and _is_slower(seconds, before):
                yield f"{lifecycle.kind}: {state} for {seconds:.0f} s, in the lab {before:.0f} s"
