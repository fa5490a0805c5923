"""The Pulumi program as a function that the Automation API calls in this process."""

import asyncio
import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Literal

from config.cluster.resolved import Resolved
from config.polling import Timeouts, poll
from infra.fleet import NO_CLAIMS, Claims, Fleet

Program = Callable[[], Awaitable[None]]

FirstStep = Literal["group", "surroundings"]
"""What is created before capacity is claimed: functions of `infra.program.cluster_program`."""

_LOOP_ENDS_S = 5.0

# gRPC would send the SDK's calls of the engine, which is on this machine, to the user's proxy
# (https://github.com/grpc/grpc/blob/master/doc/environment_variables.md, 2026-11-26).
os.environ["no_grpc_proxy"] = "127.0.0.1"  # noqa: SIM112  (gRPC's own spelling)


def load_program() -> None:
    """Import the program, and with it pulumi_aws; Python then rarely looks for garbage.

    The import takes 1.7 s of CPU time. It is done nowhere else, so that most commands do without
    it, and `plan` and `up` import it while they wait for AWS's answers and for the engine's start.
    """
    if "infra.program.cluster_program" in sys.modules:
        return
    import infra.program.cluster_program  # noqa: F401, PLC0415  see above

    # pulumi_aws has 200,000 objects that live until the end, and the program hundreds for each
    # instance. Python would look through them for garbage for one second of a plan of 2 nodes, and
    # for another one at its end.
    gc.freeze()
    gc.set_threshold(100_000)


@contextmanager
def inline_program(
    resolved: "Future[Resolved]",
    claims: Claims = NO_CLAIMS,
    *,
    only: FirstStep | None = None,
    fleet: Fleet | None = None,
) -> Iterator[Program]:
    """Yield a program that waits for the cluster, and then registers its resources.

    New nodes are launched into their `claims`; with `only` there are no nodes, and with `group` the
    stack keeps its `fleet`. The exception of `resolved` fails the program.
    """
    loops: list[asyncio.AbstractEventLoop] = []

    async def program() -> None:
        # See `load_program`.
        from infra.program.cluster_program import (  # noqa: PLC0415
            group,
            surroundings,
            whole_cluster,
        )

        loops.append(asyncio.get_running_loop())
        cluster = await asyncio.wrap_future(resolved)
        with _no_stack_traces():
            if only == "group":
                group(cluster, fleet)
            elif only == "surroundings":
                surroundings(cluster)
            else:
                whole_cluster(cluster, claims)
        # The registrations start in the loop's next round. Without it the SDK finds none to wait
        # for; it waits for the first of all outputs (60 an instance), and again after each.
        await asyncio.sleep(0)

    try:
        yield program
    finally:
        for loop in loops:
            _close(loop)
        # gRPC shares connections by address: if a later engine got the port of this one, a
        # connection of this program that is left in a cycle of objects would make it unreachable.
        gc.collect()


@contextmanager
def _no_stack_traces() -> Iterator[None]:
    """Keep Python's stack out of the resources during the block.

    The SDK reads it for each resource, and the Pulumi engine writes it with every checkpoint: a
    third of the time of a plan of 512 nodes, for paths of this machine that nobody reads.
    """
    before = getattr(sys, "tracebacklimit", 1000)  # https://docs.python.org/3/library/sys.html
    sys.tracebacklimit = 1
    try:
        yield
    finally:
        sys.tracebacklimit = before


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close a program's event loop that the SDK left open, and the connections of its tasks.

    It does so if the engine ends before the program, which happens if a resource fails: it wants to
    write a line to the engine's log before it closes the loop.
    """
    end = time.monotonic() + _LOOP_ENDS_S
    # The SDK has no event for its thread's end.
    poll(lambda: None if loop.is_running() else True, Timeouts(_LOOP_ENDS_S, 0.02))
    if loop.is_running() or loop.is_closed():
        return
    for task in asyncio.all_tasks(loop):
        task.cancel()
    while asyncio.all_tasks(loop) and time.monotonic() < end:
        # One round at a time: the SDK stops the loop at the error of a task that nobody awaits.
        loop.call_soon(loop.stop)
        loop.run_forever()
        time.sleep(0.001)
    loop.close()
