"""The notifications of a run, sent from the head: to webhooks and by commands, with tries.

Nothing waits for them: not the run, and not its nodes. Each try is a process with a
bound (notification.py). The journal has a line `notified` for each notification, sent
or not, so that the next supervisor sends what is missing. The same one may arrive twice, with the
same id, but none is lost as long as the head lives.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from engine.agent.journal.journal import Journal
from engine.agent.journal.journal_file import Message
from engine.agent.journal.redaction import Redaction
from engine.agent.node.process_group import ProcessGroup
from engine.agent.notify.lifetime import watch_budget
from engine.agent.notify.notices import Notice, Notices, body, variables, wants
from engine.contract.event import Event
from engine.contract.head_events import (
    BudgetNearing,
    HeadEnding,
    NotificationsEnded,
    Notified,
    RunFinished,
)
from engine.contract.plan import LaunchPlan, NotifyPlan


@dataclass(frozen=True)
class Tries:
    """The times of notifications, in seconds.

    `try_s` is for one try; `pauses_s` are before the second and the third try, the last. What is
    left `end_s` after the end of the run is given up; in a shutdown of the head, which kills the
    supervisor after 45 s, after `shutdown_s`.
    """

    try_s: float = 5.0
    pauses_s: tuple[float, ...] = (1.0, 4.0)
    end_s: float = 20.0
    shutdown_s: float = 10.0


TRIES = Tries()

Key = tuple[int, int]
"""The number of a notice, and the place of the target in the plan."""


class Notifier:
    """The notifications of one run.

    `secrets` maps the names in the plan's targets to values, `hidden` are values that no
    notification may have, `agent` is the agent's folder or archive.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        secrets: dict[str, str],
        hidden: Iterable[str],
        journal: Journal,
        agent: Path,
        tries: Tries = TRIES,
    ) -> None:
        self._targets, self._budget = plan.notify, plan.budget
        self._secrets, self._journal = secrets, journal
        self._hidden = [*secrets.values(), *hidden]
        self._program = str(agent / "__main__.py" if agent.is_dir() else agent)
        self._tries = tries
        self._notices = Notices(plan)
        self._pending: dict[Key, Notice] = {}
        self._turns = [asyncio.Lock() for _ in self._targets]
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self._end_s = tries.end_s
        self._runs = self._is_over = self._gives_up = self._has_ended = False

    def replay(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events that an earlier supervisor recorded, and take note of them."""
        for event in events:
            if self._targets:
                self._read(event)
            yield event

    def begin(self) -> None:
        """Send what an earlier supervisor left. From now on, send the notices of `see`'s events."""
        if not self._targets or self._has_ended:
            return
        self._runs = True
        for key in list(self._pending):
            self._send(key)
        if self._is_over:
            self._start_ending()
        else:
            self._watch()

    def _watch(self) -> None:
        """Watch the cluster's lifetime and its budget, where a target is notified of them."""
        events = {event for target in self._targets for event in target.on}
        loop = asyncio.get_running_loop()
        if "budget" in events and self._budget is not None:
            self._watches.append(loop.create_task(watch_budget(self._record, self._budget)))

    def see(self, event: Event) -> None:
        """Take the journal's next event into account; an error is printed, and not raised."""
        if not self._targets:
            return
        try:
            new = self._read(event)
            if self._runs:
                for key in new:
                    self._send(key)
                if isinstance(event, RunFinished):
                    self._start_ending()
        except Exception:
            traceback.print_exc()

    async def end(self) -> None:
        """Wait until all notifications of a run that is over are sent or given up."""
        if self._ending is not None:
            await self._ending

    def _read(self, event: Event) -> list[Key]:
        """Add the event's notifications to the pending ones, and return their keys."""
        if isinstance(event, Notified):
            self._pending.pop((event.number, event.target), None)
        elif isinstance(event, NotificationsEnded):
            self._has_ended = True
        elif isinstance(event, BudgetNearing):
            self._budget = None  # reported, perhaps by an earlier supervisor
        elif isinstance(event, RunFinished):
            self._is_over = True
        elif isinstance(event, HeadEnding):
            self._end_s = self._tries.shutdown_s
        notice = self._notices.read(event)
        if notice is None:
            return []
        places = [n for n, target in enumerate(self._targets) if wants(target.on, notice.event)]
        keys = [(notice.number, place) for place in places]
        self._pending.update(dict.fromkeys(keys, self._redacted(notice)))
        return keys

    def _record(self, event: Event) -> None:
        """Write an event about notifications, of which one may have a notice too."""
        self.see(self._journal.append(event))

    def _send(self, key: Key) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _start_ending(self) -> None:
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        for watch in self._watches:
            watch.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self._end_s)
            self._gives_up = True
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)  # each has recorded its error
        self._record(NotificationsEnded())

    async def _deliver(self, key: Key) -> None:
        """Try until the notification is sent, or in vain; record which."""
        number, place = key
        notice = self._pending[key]
        why, tries = "", 0
        try:
            for pause in (*self._tries.pauses_s, None):
                tries += 1
                result = await self._try_in_turn(place, notice, tries)
                why = result["error"]
                if not why or result["is_final"] or pause is None:
                    break
                await asyncio.sleep(max(pause, result["after_s"]))
        except asyncio.CancelledError:
            if not self._gives_up:  # this process ends: the next supervisor sends it
                raise
            why = f"{why or 'no answer'}; the run is over"
        except Exception as error:
            traceback.print_exc()
            why = type(error).__name__
        self._pending.pop(key, None)
        self._record(Notified(number, place, notice.event, tries, self._redact(why)))

    async def _try_in_turn(self, place: int, notice: Notice, number: int) -> Message:
        """Make a try; the first tries of a target are made in the order of the events."""
        if number > 1:
            return await self._try(self._targets[place], notice)
        async with self._turns[place]:
            return await self._try(self._targets[place], notice)

    async def _try(self, target: NotifyPlan, notice: Notice) -> Message:
        """Make one try in a separate process, and end that process with all its children."""
        # Files in memory: the order has secrets.
        stdin = os.fdopen(os.memfd_create("order"), "w+b")
        stdout = os.fdopen(os.memfd_create("result"), "w+b")
        with stdin, stdout:
            stdin.write(json.dumps(self._order(target, notice)).encode())
            stdin.seek(0)
            group = _start(self._program, stdin, stdout)
            try:
                await asyncio.wait_for(asyncio.to_thread(group.wait), self._tries.try_s)
                stdout.seek(0)
                result: Message = json.loads(stdout.read())
            except asyncio.TimeoutError:  # noqa: UP041  Python before 3.11
                return {
                    "error": f"no end within {self._tries.try_s:g} s",
                    "is_final": False,
                    "after_s": 0,
                }
            except ValueError:
                return {"error": "the try was killed", "is_final": False, "after_s": 0}
            finally:
                group.signal(signal.SIGKILL)
                await asyncio.to_thread(group.release)
        return result

    def _order(self, target: NotifyPlan, notice: Notice) -> Message:
        """Return what the process of a try has to do."""
        form = target.form
        named = {name: self._secrets[secret] for name, secret in target.secrets.items()}
        return {
            "form": form,
            "to": self._secrets[target.to_secret] if target.to_secret else target.to,
            "values": {**target.values, **named},
            "variables": variables(notice) if form == "command" else {},
            "body": body(form, notice),
        }

    def _redacted(self, notice: Notice) -> Notice:
        """Return the notice without secrets: a reason may quote the job's output."""
        return notice._replace(
            text=self._redact(notice.text), fields=_map_texts(notice.fields, self._redact)
        )

    def _redact(self, text: str) -> str:
        redaction = Redaction(self._hidden)
        return redaction.feed(text) + redaction.rest()


def _map_texts(fields: Message, change: Any) -> Message:
    return {
        key: change(value) if isinstance(value, str) else value for key, value in fields.items()
    }


def _start(program: str, stdin: IO[bytes], stdout: IO[bytes]) -> ProcessGroup:
    """Start the process of a try (notification.py)."""
    process = subprocess.Popen(
        [sys.executable, "-IS", program, "notify", "-"],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return ProcessGroup(process)
