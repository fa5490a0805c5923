"""The time limits of one attempt: until the job has started, and between lines of its output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engine.agent.head.states import Nodes
from engine.contract.event import Event
from engine.contract.head_events import OutputStopped, StartupOver
from engine.contract.plan import LaunchPlan

RESUMED_S = 10.0
"""Seconds for the workers' reports that an earlier supervisor did not get any more."""


class Limits:
    """The timers of an attempt while a `with` block runs; they record its ends with `record`.

    `nodes` are its nodes at the beginning. After an earlier supervisor, `passed` are the seconds
    since that one began the attempt, else None.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        record: Callable[[Event], object],
        nodes: Nodes,
        passed: float | None,
    ) -> None:
        self._record, self._nodes, self._passed = record, nodes, passed
        self._startup_s: int | None = plan.startup_timeout_s
        self._silence_s: int | None = plan.no_output_timeout_s
        self._heard: float | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __enter__(self) -> Limits:
        """Start the time for the start of the job."""
        if self._startup_s:
            left = float(self._startup_s)
            if self._passed is not None:
                left = max(RESUMED_S, left - self._passed)
            loop = asyncio.get_running_loop()
            self._timers["startup"] = loop.call_later(left, self._end_startup, self._startup_s)
        if self._nodes.count("started", "ready"):
            self.hear()
        return self

    def __exit__(self, *_: object) -> None:
        """End all timers."""
        for timer in self._timers.values():
            timer.cancel()

    def _end_startup(self, seconds: int) -> None:
        self._record(StartupOver(seconds))

    def hear(self) -> None:
        """Start the time without output anew: the job has started, or a node has printed a line."""
        if not self._silence_s:
            return
        first, self._heard = self._heard is None, asyncio.get_running_loop().time()
        if first:
            self._look()

    def _look(self) -> None:
        """Report a silence that is too long; else look again when it could be."""
        assert self._silence_s is not None
        assert self._heard is not None
        loop = asyncio.get_running_loop()
        left = self._heard + self._silence_s - loop.time()
        if left <= 0:
            self._record(OutputStopped(self._silence_s))
        else:  # one timer, and not one per line of output
            self._timers["output"] = loop.call_later(left, self._look)
