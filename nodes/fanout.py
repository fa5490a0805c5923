"""Run one action on many nodes at once, and group nodes with equal answers."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from config.errors import GpuctlError
from config.folded_names import fold
from nodes.inventory import Node

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


async def on_each(
    nodes: Sequence[Node], action: Callable[[Node], Awaitable[T]], limit: int = 64
) -> dict[int, T | GpuctlError]:
    """Run the action on every node, at most `limit` at a time; a failure does not stop the others.

    Returns one entry per rank, in rank order: the action's result, or the GpuctlError that it
    raised. Any other exception is a mistake in gpuctl and ends the whole call.
    """
    places = asyncio.Semaphore(limit)

    async def on_node(node: Node) -> T | GpuctlError:
        async with places:
            try:
                return await action(node)
            except GpuctlError as error:
                return error

    async with asyncio.TaskGroup() as group:
        tasks = {node.rank: group.create_task(on_node(node)) for node in nodes}
    return {rank: tasks[rank].result() for rank in sorted(tasks)}


@dataclass(frozen=True)
class Group(Generic[H]):
    """Nodes that gave the same answer; `names` is folded: `node[0-3]`."""

    names: str
    ranks: tuple[int, ...]
    answer: H


def fold_answers(nodes: Sequence[Node], answers: Mapping[int, H]) -> tuple[Group[H], ...]:
    """Return one group per distinct answer, in the order of each group's first rank."""
    names = {node.rank: node.name for node in nodes}
    ranks: dict[H, list[int]] = {}
    for rank in sorted(answers):
        ranks.setdefault(answers[rank], []).append(rank)
    return tuple(
        Group(fold(names[rank] for rank in alike), tuple(alike), answer)
        for answer, alike in ranks.items()
    )
