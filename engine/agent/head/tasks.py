"""The tasks of a block of code, which end with it: asyncio.TaskGroup begins with Python 3.11."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Tasks that are cancelled and awaited at the end of an `async with` block.

    An error ends its task alone, and is printed to the unit's log.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Tasks:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)  # each error is printed

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_print_error)
        self._tasks.add(task)


def _print_error(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        traceback.print_exception(type(error), error, error.__traceback__)
