"""What is worth a notification in a run's journal, and its text: pure functions of the events.

docs/do/notifications.md has the bodies. A supervisor that reads the journal again gets the same
notices with the same numbers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from engine.contract.event import Event
from engine.contract.head_events import (
    AttemptEnded,
    AttemptStarted,
    BudgetNearing,
    LeaseEnding,
    RunFinished,
    RunQueued,
    RunStarted,
    WaitingForNodes,
)
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import NodeInterrupted, NoticeGiven

Message = dict[str, Any]
INTERRUPTIONS = 10
"""Interrupted nodes of a run that have a notification each, and other notices to its job: AWS may
reclaim a whole fleet."""
LONGEST_REASON = 2000  # characters
LONGEST_SUBJECT = 200  # characters
SCHEMA_VERSION = 1


class Notice(NamedTuple):
    """One event of a run in words; `number` counts from 1, `fields` are details by event."""

    number: int
    event: str
    time: float
    text: str
    fields: Message


class Notices:
    """The notices of a run."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._plan = plan
        self._names = [node.name for node in plan.nodes]
        self._number = self._interruptions = self._given = 0
        self._attempt = 1
        self._queued: float | None = None
        self._began: float | None = None
        self._makers: dict[type[Event], Callable[[Any], Any]] = {
            RunQueued: self._queue,
            RunStarted: self._start,
            AttemptEnded: self._retry,
            WaitingForNodes: self._wait,
            AttemptStarted: self._count_attempt,
            NodeInterrupted: self._interrupt,
            NoticeGiven: self._give_notice,
            LeaseEnding: self._end_lease,
            BudgetNearing: self._near_budget,
            RunFinished: self._end,
        }

    def read(self, event: Event) -> Notice | None:
        """Return the notice of the journal's next event; None if it has none."""
        make = self._makers.get(type(event))
        made = make(event) if make else None
        if made is None:
            return None
        self._number += 1
        name, text, fields = made
        where = {
            "run_id": self._plan.run_id,
            "name": self._plan.name,
            "cluster": self._plan.cluster,
            "nodes": self._names,
            "attempt": self._attempt,
        }
        text = f"run {self._plan.run_id} on cluster {self._plan.cluster}{text}"
        return Notice(self._number, name, event.time, text, {**where, **fields})

    def _queue(self, event: RunQueued) -> None:
        self._queued = self._queued or event.time

    def _count_attempt(self, event: AttemptStarted) -> None:
        self._attempt = event.number

    def _start(self, event: RunStarted) -> Any:
        self._began = event.time
        count = f"{len(self._names)} nodes" if len(self._names) > 1 else "1 node"
        waited = None if self._queued is None else round(event.time - self._queued)
        after = "" if waited is None else f", after {words(waited)} in the queue"
        return "start", f" has started on {count}{after}", {"queued_s": waited}

    def _retry(self, event: AttemptEnded) -> Any:
        when = f" in {words(event.pause_s)}" if event.pause_s else ""
        which = f"attempt {event.number} of {event.attempts}"
        text = f": {which} failed: {_cut(event.reason)}; another one follows{when}"
        fields = {**self._failure(event), "attempts": event.attempts, "pause_s": event.pause_s}
        return "retry", text, fields

    def _wait(self, event: WaitingForNodes) -> Any:
        names = ", ".join(event.nodes)
        makes = f"`{self._plan.gpuctl} attach {self._plan.run_id}` makes lost nodes again"
        text = f" waits for {names}, for {words(event.seconds)} at most: {makes}"
        return "waiting", text, {"lost": list(event.nodes), "wait_s": event.seconds}

    def _interrupt(self, event: NodeInterrupted) -> Any:
        self._interruptions += 1
        if self._interruptions > INTERRUPTIONS:
            return None
        name = self._names[event.rank]
        text = f": AWS takes {name}'s spot instance back: {event.action} at {event.at}"
        if self._interruptions == INTERRUPTIONS:
            text += "; further ones are not reported"
        return "interruption", text, {"node": name, "action": event.action, "at": event.at}

    def _give_notice(self, event: NoticeGiven) -> Any:
        self._given += 1
        if self._given > INTERRUPTIONS:
            return None
        name = None if event.rank is None else self._names[event.rank]
        at = None if event.deadline is None else iso(event.deadline)
        text = f": {event.text}"
        if self._given == INTERRUPTIONS:
            text += "; further notices are not reported"
        return "notice", text, {"notice": event.notice, "node": name, "deadline": at}

    def _end_lease(self, event: LeaseEnding) -> Any:
        at, left = iso(event.at), words(event.at - event.time)
        text = f": the cluster's lifetime ends at {at}, in {left}; its nodes power off then"
        text += f", and the rest costs until `{self._plan.gpuctl} down {self._plan.cluster}`"
        return "lease", text, {"ends_at": at}

    def _near_budget(self, event: BudgetNearing) -> Any:
        # A sum may be a hair less than it should: 79.999999 is 80 %.
        percent = int(100 * event.spent_usd / event.max_usd + 1e-6)
        spent, most = f"${event.spent_usd:,.2f}", f"${event.max_usd:,.2f}"
        text = f": the cluster has cost about {spent}, {percent} % of budget.max_total ({most})"
        text += f"; it reaches that at {iso(event.at)}" if percent < 100 else ""
        text += f"; `{self._plan.gpuctl} down {self._plan.cluster}` ends the cost"
        fields = {"spent_usd": round(event.spent_usd, 2), "max_usd": event.max_usd}
        return "budget", text, {**fields, "reached_at": iso(event.at)}

    def _end(self, event: RunFinished) -> Any:
        took = None if self._began is None else round(event.time - self._began)
        after = "" if took is None else f" after {words(took)}"
        reason = f": {_cut(event.reason)}" if event.reason else ""
        how = {
            "done": f" is done{after}",
            "stopped": f" was stopped{after}{reason}",
            "failed": f" has failed{after} with exit code {event.exit_code}{reason}",
        }
        name = "failure" if event.status == "failed" else "end"
        fields = {"status": event.status, "duration_s": took, **self._failure(event)}
        return name, how[event.status], fields

    def _failure(self, event: AttemptEnded | RunFinished) -> Message:
        rank = event.first_failed_rank
        return {
            "exit_code": event.exit_code,
            "reason": _cut(event.reason),
            "failed_node": None if rank is None else self._names[rank],
        }


def wants(on: Collection[str], event: str) -> bool:
    """Return whether a target is notified of the event; a failure is an end, too."""
    return event in on or (event == "failure" and "end" in on)


def json_body(notice: Notice) -> str:
    """Return the JSON form of the notice."""
    head = {
        "schema_version": SCHEMA_VERSION,
        "id": f"{notice.fields['run_id']}/{notice.number}",
        "event": notice.event,
        "time": iso(notice.time),
        "text": notice.text,
    }
    return json.dumps({**head, **notice.fields})


def slack_body(notice: Notice) -> str:
    """Return the body for a webhook of Slack: a POST of JSON with `text`.

    Slack answers 200 with `ok` (https://docs.slack.dev/tools/python-slack-sdk/webhook, 2026-11-23).
    Its text has three special characters (https://api.slack.com/docs/attachments/, 2026-11-23).
    """
    text = notice.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return json.dumps({"text": text})


def email_body(notice: Notice) -> str:
    """Return the parts of an e-mail as JSON: an id, the subject in one line, and the text."""
    details = {"event": notice.event, "time": iso(notice.time), **notice.fields}
    lines = [
        f"{name}: {', '.join(value) if isinstance(value, list) else value}"
        for name, value in details.items()
        if value not in (None, "")
    ]
    subject = " ".join(notice.text.split())
    if len(subject) > LONGEST_SUBJECT:
        subject = f"{subject[: LONGEST_SUBJECT - 1]}…"
    mail = {
        "id": f"{notice.fields['run_id']}.{notice.number}",
        "subject": subject,
        "text": "\n".join([notice.text, "", *lines, ""]),
    }
    return json.dumps(mail)


_BODIES: dict[str, Callable[[Notice], str]] = {"slack": slack_body, "email": email_body}


def body(form: str, notice: Notice) -> str:
    """Return what a target of the form gets of the notice."""
    return _BODIES.get(form, json_body)(notice)


def variables(notice: Notice) -> dict[str, str]:
    """Return what a command has in its environment about the notice."""
    return {
        "GPUCTL_EVENT": notice.event,
        "GPUCTL_TEXT": notice.text.replace("\0", ""),
        "GPUCTL_RUN_ID": notice.fields["run_id"],
        "GPUCTL_CLUSTER": notice.fields["cluster"],
    }


def iso(seconds: float) -> str:
    """Return a time as `2026-11-23T09:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def words(seconds: float) -> str:
    """Return a duration in its two largest units: `3 h 2 min`, `45 s`."""
    whole = max(0, round(seconds))
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    parts: list[str] = []
    for size, name in units:
        if whole >= size and len(parts) < 2:
            parts.append(f"{whole // size} {name}")
            whole %= size
        elif parts:
            break
    return " ".join(parts) or "0 s"


def _cut(reason: str) -> str:
    return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…"
