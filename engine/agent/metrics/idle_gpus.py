"""GPUs that are idle while a run goes on."""

from __future__ import annotations

from engine.agent.journal.journal import Message

IDLE_S = 600.0
"""Seconds after which a GPU without work counts as idle: loading data may take minutes."""
MOST_PERCENT = 1.0
"""The utilisation that an idle GPU may have. A rank that waits in NCCL keeps its GPU at 100 %."""
GAP_S = 60.0
"""Seconds without a sample after which a GPU's idle time begins anew."""


class IdleGpus:
    """The idle GPUs of a run, by the samples of its nodes."""

    def __init__(self) -> None:
        self._since: dict[int, dict[int, float]] = {}
        self._seen: dict[int, float] = {}
        self._reported: set[tuple[int, int]] = set()

    def add(self, rank: int, sample: Message) -> list[int]:
        """Take a sample of a node into account; return the GPUs that became idle with it."""
        now: float = sample["time"]
        gpus = sample.get("gpus")
        if not gpus:
            return []
        if now - self._seen.get(rank, now) > GAP_S:
            self._since.pop(rank, None)
        self._seen[rank] = now
        since = self._since.setdefault(rank, {})
        for gpu, percent, *_ in gpus:
            if percent is None or percent > MOST_PERCENT:
                since.pop(gpu, None)
                self._reported.discard((rank, gpu))
            else:
                since.setdefault(gpu, now)
        became = [gpu for gpu in self.of(rank, now) if (rank, gpu) not in self._reported]
        self._reported.update((rank, gpu) for gpu in became)
        return became

    def of(self, rank: int, now: float) -> dict[int, float]:
        """Return the node's idle GPUs, each with the time since which it has no work."""
        since = self._since.get(rank, {})
        return {gpu: at for gpu, at in sorted(since.items()) if now - at >= IDLE_S}
