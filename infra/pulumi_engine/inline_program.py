"""The Pulumi program inside this process, with a cost that is linear in the number of nodes.

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

from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS

_LOOP_ENDS_S = 5.0
_LIMITING = threading.Lock()

# gRPC shares connections by address. A program that is broken off leaves some to an engine that has
# ended. If the next engine gets the same port, gRPC would call it unreachable without a try.
# See docs/decisions/398-each-engine-has-connections-of-its-own.md.
_GRPC_CHANNEL_OPTIONS.append(("grpc.use_local_subchannel_pool", 1))
# The SDK's connections stay on this machine. gRPC would send those to 127.0.0.1 to the user's proxy
# too (https://grpc.github.io/grpc/core/group__grpc__arg__keys.html, 2026-11-26).
_GRPC_CHANNEL_OPTIONS.append(("grpc.enable_http_proxy", 0))


@contextmanager
def inline_program(
    build: Callable[[], None], after: Future[Any] | None = None
) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
    """Yield `build` as a program for the Automation API; close its event loop afterwards.

    With `after` the Pulumi engine starts at once, and `build` is called when that future has a
    result; its exception fails the program.

    The SDK's language server runs the program in an event loop. It leaves the loop open, with tasks
    in it, if the Pulumi engine ends before the program, which happens if a resource fails: it wants
    to write a line to the engine's log before it cancels them.
    """
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        if after is not None:
            await asyncio.wrap_future(after)
        with _no_stack_traces():
            build()
        # This starts all registrations; the SDK then awaits one after the other. Without it the
        # SDK would wait for the first of all outputs (several per resource), and again after each.
        await asyncio.sleep(0)

    try:
        with _no_garbage_collection():
            yield run
    finally:
        for loop in loops:
            end = time.monotonic() + _LOOP_ENDS_S
            while loop.is_running() and time.monotonic() < end:
                time.sleep(0.02)  # the SDK has no event for its thread's end
            if not loop.is_running() and not loop.is_closed():
                _end(loop)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks that are left in an event loop, and close it.

    The SDK stops the loop, now or when it runs next, at the error of a task that nobody awaits. So
    the loop runs one round at a time.
    """
    for task in asyncio.all_tasks(loop):
        task.cancel()
    end = time.monotonic() + _LOOP_ENDS_S
    while asyncio.all_tasks(loop) and time.monotonic() < end:
        loop.call_soon(loop.stop)
        loop.run_forever()
        time.sleep(0.001)
    loop.close()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable Python's garbage collection during the block.

    The SDK keeps hundreds of objects per instance until the end. Scanning their growing number
    takes a quarter of the SDK's time for 512 nodes, and frees nothing.
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
    """Keep stack traces out of the resources.

    The SDK stores Python's stack (`traceback.extract_stack`, which obeys this limit) with every
    resource, and the Pulumi engine writes it with every checkpoint. It makes two thirds of a node's
    part of a checkpoint, contains paths of this machine, and nobody reads it.
    """
    with _LIMITING:  # the limit applies to the process: programs of other threads wait
        before = getattr(sys, "tracebacklimit", None)
        sys.tracebacklimit = 1  # only the SDK's call, which the SDK drops
        try:
            yield
        finally:
            if before is None:
                del sys.tracebacklimit
            else:
                sys.tracebacklimit = before
