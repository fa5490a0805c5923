"""The examination of a silent job: the head asks all workers, and compares what they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from engine.agent.head.states import NodeState
from engine.agent.journal.journal_file import Message
from engine.agent.judge.hangs import HangVerdict, Seen, judge_hang
from engine.agent.node.rank_processes import LIMIT_S
from engine.contract.worker_events import RanksExamined

_MOST_S = LIMIT_S + 2  # for the worker's examination, and its way


class HangExamination:
    """One examination of the nodes on which the job runs; `send` sends a worker an order."""

    def __init__(self, nodes: Sequence[NodeState], send: Callable[[int, Message], None]) -> None:
        self._nodes = nodes
        self._examined = {rank for rank, node in enumerate(nodes) if node.phase in _RUNNING}
        self._answers: dict[int, RanksExamined] = {}
        self._is_complete = asyncio.Event()
        for rank in self._examined:
            send(rank, {"do": "examine"})

    def add(self, rank: int, answer: RanksExamined) -> None:
        """Add a node's answer."""
        self._answers[rank] = answer
        if self._examined <= self._answers.keys():
            self._is_complete.set()

    async def judge(self) -> HangVerdict:
        """Wait for the answers, for a limited time, and return the verdict."""
        await asyncio.wait([asyncio.ensure_future(self._is_complete.wait())], timeout=_MOST_S)
        seen = [
            Seen(self._nodes[rank].name, process)
            for rank, answer in sorted(self._answers.items())
            for process in answer.processes
        ]
        nodes = {number: node.name for node in self._nodes for number in node.ranks}
        silent = [self._nodes[rank].name for rank in sorted(self._examined - self._answers.keys())]
        return judge_hang(seen, nodes, silent)

    def texts(self) -> Iterator[tuple[int, str]]:
        """Yield the rank of each node that answered, and all that it showed in words."""
        for rank, answer in sorted(self._answers.items()):
            texts = []
            for process in answer.processes:
                number = "no rank" if process.rank is None else f"rank {process.rank}"
                texts.append(f"{number}: {process.command}, pid {process.pid}\n{process.text}")
            yield rank, "\n".join(texts)


_RUNNING = ("started", "ready")
"""The phases of a node with a job."""
