"""A program as Pulumi's SDK runs it inside this process, kept linear in the number of nodes.

Measured with the SDK 3.258.0 in docs/decisions/140-checkpoints-are-short.md.
"""

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

_LOOP_ENDS_S = 5.0
_LIMITING = threading.Lock()


@contextmanager
def inline_program(
    build: Callable[[], None], after: Callable[[], Future[Any]] | None = None
) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
    """The program for the Automation API, and no event loop left open after it.

    With `after` the engine starts at once, and `build` is called when the future that `after`
    returns has an answer; an exception in it is the program's.

    The SDK's language server runs the program in a loop, and forgets it where the engine ends
    first, as it does when a resource failed.
    """
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        if after is not None:
            await asyncio.wrap_future(after())
        with _no_stack_traces():
            build()
        # Every registration starts now, and the SDK awaits one after the other. If it saw none
        # yet, it would wait for the first of all outputs (60 an instance), again after each.
        await asyncio.sleep(0)

    try:
        with _no_garbage_collection():
            yield run
    finally:
        for loop in loops:
            end = time.monotonic() + _LOOP_ENDS_S
            while loop.is_running() and time.monotonic() < end:
                time.sleep(0.02)  # nothing tells when the SDK's thread is out of it
            if not loop.is_running():
                loop.close()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Python does not look for cycles meanwhile.

    The SDK keeps hundreds of objects for each instance until the end. Looking through all of them
    as their number grows takes a quarter of its time for 512 nodes, and finds nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _no_stack_traces() -> Iterator[None]:
    """Resources do not remember by which calls they were made.

    The SDK takes Python's stack (`traceback.extract_stack`, which heeds this limit) with every
    resource, and the engine writes it with every checkpoint: two thirds of what a node takes there,
    with the paths of this machine. Nobody reads it.
    """
    with _LIMITING:  # the limit is the whole process's: programs of other threads wait
        before = getattr(sys, "tracebacklimit", None)
        sys.tracebacklimit = 1  # the SDK's own call alone, which it leaves out
        try:
            yield
        finally:
            if before is None:
                del sys.tracebacklimit
            else:
                sys.tracebacklimit = before
