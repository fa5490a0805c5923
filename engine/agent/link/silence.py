"""The watch for peers that send no heartbeats any more (heartbeat.py): pure."""

from __future__ import annotations

STALL_S = 3.0
"""Seconds between two calls, three heartbeats, after which the caller counts as stopped."""


class SilenceWatch:
    """A watch for silent peers. The caller passes all times, in seconds of one clock.

    If the caller itself was stopped (more than STALL_S between two calls), that time does not count
    as silence of the peers: their heartbeats may have arrived without being read.
    """

    def __init__(self, bound_s: float) -> None:
        self._bound_s = bound_s
        self._heard: dict[int, float] = {}
        self._reported: set[int] = set()
        self._now: float | None = None

    def hear(self, peer: int, now: float) -> float:
        """Record a heartbeat of `peer`; return the seconds since its last one, 0 for the first."""
        self._advance(now)
        silence = now - self._heard.get(peer, now)
        if peer not in self._reported:
            self._heard[peer] = now
        return silence

    def look(self, now: float) -> list[int]:
        """Return the peers that have become silent since the last call, each of them once."""
        self._advance(now)
        silent = [peer for peer, at in self._heard.items() if now - at >= self._bound_s]
        for peer in silent:
            del self._heard[peer]
        self._reported.update(silent)
        return silent

    def _advance(self, now: float) -> None:
        stopped_s = 0.0 if self._now is None else now - self._now
        self._now = now
        if stopped_s > STALL_S:
            self._heard = {peer: at + stopped_s for peer, at in self._heard.items()}
