"""The one place where a run's events become its journal, its state, and what follows from them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from engine.agent.head.run_state import RunState
from engine.agent.head.states import Action
from engine.agent.head.verdicts import ENDS_RUN
from engine.agent.journal.journal import E, Journal
from engine.contract.event import Event
from engine.contract.head_events import NodesHealed


def _ignore(_: object) -> None:
    pass  # nobody listens


class Recorder:
    """The writer of a run's events; `state` is always that of the journal.

    `see` gets each event after it was added to the state, also one that the disk did not store.
    """

    def __init__(
        self, state: RunState, journal: Journal, see: Callable[[Event], None] = _ignore
    ) -> None:
        self.state, self.journal = state, journal
        self._see = see
        self._act: Callable[[Action], None] = _ignore
        self._changed = asyncio.Event()

    def record(self, event: E) -> E:
        """Write the event to the journal, and act on it; return it with its time."""
        event = self.journal.append(event)
        phase = self.state.attempt.phase
        actions = self.state.add(event)
        self._see(event)
        for action in actions:
            self._act(action)
        if self.state.attempt.phase != phase or isinstance(event, (NodesHealed, *ENDS_RUN)):
            self._changed.set()
        return event

    @contextlib.contextmanager
    def carried_out_by(self, act: Callable[[Action], None]) -> Iterator[None]:
        """Let `act` carry out the actions that follow from the events of this block."""
        self._act = act
        try:
            yield
        finally:
            self._act = _ignore

    async def wait_until(
        self, condition: Callable[[], object], seconds: float | None = None
    ) -> bool:
        """Wait until phase, verdicts or healed nodes fulfil the condition; return False if late.

        The supervisor waits for one condition at a time.
        """
        loop = asyncio.get_running_loop()
        until = None if seconds is None else loop.time() + seconds
        while not condition():
            left = None if until is None else until - loop.time()
            if left is not None and left <= 0:
                return False
            self._changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):  # `left` is 0 then
                await asyncio.wait_for(self._changed.wait(), left)
        return True
