"""The ladder: ask before each step, take it, and record it."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from config.errors import GpuctlError
from config.quantities import counted
from provision.aws.calls import redact
from smoke.differences import differences
from smoke.ladder_record import (
    LadderRecord,
    StepPrice,
    StepRecord,
    add_step,
    lifecycles,
    operations,
    read_calls,
    refusals,
)
from smoke.rent import Remains
from smoke.steps import STEPS, LadderStep, StepActions
from smoke.versions import versions
from smoke.workplace import Workplace

DONE, INTERRUPTED = "done", "interrupted"
_SHOWN = 20
"""The most differences that are printed; the record has all."""


@dataclass(frozen=True)
class Ladder:
    """A way up the steps: from step `first`, without a question up to step `yes_up_to`.

    `record` is the file to which every step is appended; `lab` has the lab's answers.
    """

    site: Workplace
    first: int
    yes_up_to: int
    record: Path
    lab: LadderRecord

    def climb(self) -> int:
        """Take the steps until one fails, or somebody does not want the next; return the code."""
        steps = StepActions(self.site)
        for step in STEPS[self.first - 1 :]:
            self.site.begin_step()
            began = datetime.now(UTC)
            price, outcome, left = None, "", tuple[str, ...]()
            print(f"\nStep {step.number} of {len(STEPS)}: {step.title}", flush=True)
            try:
                price = steps.price(step)
                if not self._is_agreed(step, price):
                    print(f"aws-smoke: stopped before step {step.number}; {self._again(step)}")
                    return 0
                steps.take(step)
                outcome = DONE
            except (KeyboardInterrupt, SystemExit):
                outcome = INTERRUPTED
            except Exception as error:
                is_known = isinstance(error, GpuctlError)
                outcome = str(error) if is_known else f"{type(error).__name__}: {error}"
                left = error.left if isinstance(error, Remains) else ()
            self._record(step, price, outcome, left, began)
            if outcome != DONE:
                print(f"aws-smoke: step {step.number}: {outcome}", file=sys.stderr)
                print(f"aws-smoke: {self._again(step)}", file=sys.stderr)
                return 130 if outcome == INTERRUPTED else 1
        print(f"\naws-smoke: all steps are done; the record is {self.record}")
        return 0

    def _is_agreed(self, step: LadderStep, price: StepPrice | None) -> bool:
        print(question(price), flush=True)
        if step.number <= self.yes_up_to:
            return True
        if not sys.stdin.isatty():
            return False
        try:
            return input(f"Go on with step {step.number}? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            return False

    def _again(self, step: LadderStep) -> str:
        options = " ".join(self.site.lab.options) + " " if self.site.lab else ""
        return f"go on with: scripts/aws-smoke {options}--from {step.number}"

    def _record(
        self,
        step: LadderStep,
        price: StepPrice | None,
        outcome: str,
        left: tuple[str, ...],
        began: datetime,
    ) -> None:
        site, calls = self.site, read_calls(self.site.calls)
        summed, states = operations(calls), lifecycles(calls)
        taken = StepRecord(
            step=step.number,
            title=step.title,
            where=site.where,
            account=site.who.account,
            region=site.target.region,
            began=began,
            seconds=round((datetime.now(UTC) - began).total_seconds(), 1),
            outcome=redact(outcome),
            versions=versions() | {name: redact(text) for name, text in site.versions.items()},
            price=price,
            commands=tuple(site.commands),
            notes=tuple(map(redact, site.notes)),
            calls=summed,
            lifecycles=states,
            refusals=refusals(calls),
            ids=tuple(site.ids),
            left=left,
            differences=differences(step.number, summed, states, self.lab.steps),
        )
        add_step(self.record, taken)
        for line in recorded_lines(taken, self.record, compared=bool(self.lab.steps)):
            print(line, flush=True)


def recorded_lines(step: StepRecord, path: Path, *, compared: bool) -> Iterator[str]:
    """Yield the lines about the record of a step, with the first differences if it was compared."""
    calls = sum(call.count for call in step.calls)
    yield f"-- step {step.step} took {step.seconds:.0f} s and {calls} calls: {path}"
    if not compared:
        return
    count = len(step.differences)
    yield f"-- {counted(count, 'difference')} from the lab's answers"
    yield from (f"   {line}" for line in step.differences[:_SHOWN])
    if count > _SHOWN:
        yield f"   … and {count - _SHOWN} more in the record"


def question(price: StepPrice | None) -> str:
    """Return what the step costs and leaves, to be printed before it begins."""
    if price is None:
        return "It costs nothing, and creates nothing."
    if price.usd_h is None or price.about_usd is None:
        return f"Its price is not known: {price.source} has none. It leaves nothing behind."
    minutes = round(price.about_usd / price.usd_h * 60)
    most = (
        ""
        if price.most_usd is None
        else (
            f", and at most ${price.most_usd:.2f} if its nodes are not removed before lifetime.max"
        )
    )
    return (
        f"It costs about ${price.about_usd:.2f}: {minutes} minutes at ${price.usd_h:.2f} per hour"
        f" ({price.source}){most}. It leaves nothing behind."
    )
