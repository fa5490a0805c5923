"""The Pulumi engine's events, as progress for people, and its errors as one line with a remedy."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from pulumi.automation import DiagnosticEvent, EngineEvent, StepEventMetadata

from config.catalogue.aws_codes import aws_code
from config.command_text import command_text
from config.errors import InfraError
from config.files import disk_error, is_access_error
from config.folders import cache_home
from config.progress import Progress, Reporter, silent
from config.yaml.hints import shorten
from infra.stack.changes import is_cloud, name_of

_COLOUR = re.compile(r"<\{%[^%]*%\}>|\x1b\[[0-9;]*m")
# EC2's errors are "api error CODE: text"; services with typed errors leave "api error" out.
_AWS = re.compile(r"(?:api error |RequestID: [\w-]+, )(?P<code>[\w.]+): (?P<text>.*)", re.DOTALL)
_CODE = re.compile(r"[A-Z][\w.]+")
_FRAME = re.compile(r"^\s*(?:std(?:out|err): ?|\d+\) )?|\s+$")
_CODE_LINE = re.compile(r"code: (-?\d+)")
_BULLET = re.compile(r"^\s*\* ", re.MULTILINE)

_LONGEST = 400  # characters of a message: AWS sometimes lists every zone of the world

_TAKEN = (
    "a cluster of this name already exists, or a crash left parts of one: `gpuctl status {stack}`"
    " shows its owner; choose another name, or, if it is yours, remove it: `gpuctl down {stack}`"
)

_HINTS = {
    "InvalidKeyPair.Duplicate": _TAKEN,
    "InvalidPlacementGroup.Duplicate": _TAKEN,
    "InvalidGroup.Duplicate": _TAKEN,
    "InvalidLaunchTemplateName.AlreadyExistsException": _TAKEN,
}
_NO_ROOM = "no space left on device"
_READ_ONLY = "read-only file system"
_DAMAGED = "unexpected end of JSON input"  # of encoding/json; "failed to load checkpoint" or bare
_MAKE_ROOM = (
    "make room on that disk; `gpuctl status` shows what exists and bills, `gpuctl down {stack}`"
    " removes it"
)
_GOES_ON = (
    "gpuctl keeps a record of what exists: run the same command again to continue, or"
    " `gpuctl down {stack}` to remove it"
)


class DamagedState(InfraError):
    """The Pulumi engine cannot read its state: a full disk has cut the file off."""


class PlanViolated(InfraError):
    """The Pulumi engine stopped because the update differs from the plan."""


@dataclass(frozen=True)
class Failure:
    """The Pulumi engine's error about one resource; `urn` is empty if it concerns none."""

    urn: str
    text: str

    @property
    def generic(self) -> bool:
        """Return whether it only reports that something else failed."""
        return bool(
            re.match(r"(update|preview|refresh|destroy)?\s*(failed|canceled)$", self.text)
            or "resource monitor shut down" in self.text.lower()
            or "Resource monitor has terminated" in self.text
        )


def failure_of(event: DiagnosticEvent) -> Failure:
    """Return the failure in an event, as one line without the Pulumi engine's framing."""
    return Failure(event.urn or "", one_line(event.message))


def one_line(message: str) -> str:
    """Return AWS's code and text if there are any, else the message, as one line."""
    plain = _COLOUR.sub("", message)
    aws = _AWS.search(plain)
    if aws:
        return shorten(" ".join(f"{aws['code']}: {aws['text']}".split()), _LONGEST)
    lines = [_BULLET.sub("", line).strip() for line in plain.splitlines()]
    kept = [line for line in lines if line and not re.match(r"\d+ errors? occurred:", line)]
    return shorten(" ".join(kept).removeprefix("error: "), _LONGEST)


def complaint(output: str) -> str:
    """Return the error in a Pulumi engine's output, as one line; the disk comes first.

    `output` is the text of the SDK's CommandError: the exit code, stdout and stderr.
    """
    lines = [_FRAME.sub("", line) for line in output.splitlines()]
    for sign in (_NO_ROOM, _READ_ONLY, "error: "):
        for line in lines:
            if sign in line:
                return one_line(line)
    codes = [match[1] for match in map(_CODE_LINE.fullmatch, lines) if match]
    said = [line for line in lines if line and not _CODE_LINE.fullmatch(line)]
    if said or not codes:
        return said[-1] if said else "Pulumi's engine failed"
    code = int(codes[0])
    signals = {-signal: signal.name for signal in Signals}
    how = f"was killed by {signals[code]}" if code in signals else f"ended with exit code {code}"
    return f"Pulumi's engine {how}, and says nothing"


def local_error(stack: str, failed: Exception, engine: Path) -> InfraError:
    """Return gpuctl's error for an exception of this process while it works with the engine."""
    if isinstance(failed, OSError) and failed.filename and is_access_error(failed):
        problem = disk_error(failed.filename, failed)
        return InfraError(problem.message, problem.hint)
    if isinstance(failed, json.JSONDecodeError):
        return InfraError(
            f"Pulumi's engine answers what gpuctl cannot read: {failed}",
            f"see that {engine} is Pulumi's own command, or let gpuctl install it: `gpuctl doctor`",
        )
    return error(stack, Failure("", f"Pulumi's engine failed: {failed}"))


def error(stack: str, failure: Failure) -> InfraError:
    """Return gpuctl's error for the failure."""
    code = failure.text.partition(":")[0]
    if _DAMAGED in failure.text:
        return DamagedState(
            f"Pulumi's state of {stack} is damaged: {failure.text}",
            f"{command_text('gpuctl down {}', stack)}"
            " finds by its tags what exists, and removes it",
        )
    if _NO_ROOM in failure.text:
        hint = _MAKE_ROOM
    elif _READ_ONLY in failure.text:
        hint = "mount that file system writable, or set GPUCTL_STATE to a folder that you can write"
    elif "resource plugin" in failure.text:
        place = cache_home() / "pulumi" / "plugins"
        hint = f"remove {place}, and run the same command again: gpuctl installs it anew"
    elif "by the plan" in failure.text or "violates plan" in failure.text:
        return PlanViolated(
            f"{stack} has changed since the plan was made: {failure.text}",
            "run the command again to get a new plan",
        )
    else:
        known = aws_code(code)
        hint = _HINTS.get(code) or (known.remedy if known else _GOES_ON)
    if not failure.urn:
        return InfraError(failure.text, hint.format(stack=stack))
    kind = failure.urn.split("::")[2].rpartition("$")[2]
    return InfraError(
        f"{name_of(failure.urn)} ({kind}) failed: {failure.text}",
        hint.format(stack=stack),
        code if _CODE.fullmatch(code) else "",
        name_of(failure.urn),
    )


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
