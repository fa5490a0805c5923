"""The Pulumi engine's events, converted to progress for people and to the reason of a failure."""

import time
from collections.abc import Mapping

from pulumi.automation import EngineEvent, StepEventMetadata

from config.progress import Progress, Reporter, silent
from infra.stack.changes import is_cloud, name_of
from infra.stack.failures import Failure, failure_of

_WORDS: Mapping[str, str] = {
    "create": "create",
    "create-replacement": "create the replacement",
    "update": "update",
    "delete": "delete",
    "delete-replaced": "delete the replaced one",
}


class EventWatch:
    """A handler of the Pulumi engine's events: it reports each resource, and keeps the failures.

    The Pulumi engine sends its events from one thread, in order.
    """

    def __init__(self, stage: str, report: Reporter = silent) -> None:
        self.events: list[EngineEvent] = []
        self._stage = stage
        self._report = report
        self._started: dict[str, float] = {}
        self._failures: list[Failure] = []

    @property
    def failure(self) -> Failure | None:
        """The first failure that has a cause; a generic one if there is no other."""
        about = sorted(self._failures, key=lambda f: (f.generic, not f.urn))
        return about[0] if about else None

    def __call__(self, event: EngineEvent) -> None:
        """Handle one event."""
        self.events.append(event)
        if event.resource_pre_event:
            self._start(event.resource_pre_event.metadata)
        elif event.res_outputs_event:
            step = event.res_outputs_event.metadata
            self._done(step)
        elif event.res_op_failed_event:
            self._failed(event.res_op_failed_event.metadata)
        elif event.diagnostic_event and event.diagnostic_event.severity == "error":
            self._failures.append(failure_of(event.diagnostic_event))

    def _start(self, step: StepEventMetadata) -> None:
        if step.op in _WORDS and is_cloud(step.type):
            self._started[step.urn] = time.monotonic()
            self._report(Progress(self._stage, _subject(step), "start", _WORDS[step.op]))

    def _done(self, step: StepEventMetadata) -> None:
        if step.op in _WORDS and is_cloud(step.type):
            word = _WORDS[step.op]
            took = self._took(step.urn)
            self._report(Progress(self._stage, _subject(step), "done", word, took))

    def _failed(self, step: StepEventMetadata) -> None:
        texts = [f.text for f in self._failures if f.urn == step.urn]
        detail = texts[0] if texts else _WORDS.get(step.op, step.op)
        took = self._took(step.urn)
        self._report(Progress(self._stage, _subject(step), "failed", detail, took))

    def _took(self, urn: str) -> float | None:
        started = self._started.pop(urn, None)
        return None if started is None else time.monotonic() - started


def _subject(step: StepEventMetadata) -> str:
    return f"{step.type} {name_of(step.urn)}"
