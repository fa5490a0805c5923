"""Locks on a head, and the guard against its power-off, while a client removes or heals nodes.

They open ssh connections anew: the broker of nodes.kept_connections belongs to a cluster
that stays.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from config.errors import NodeError
from config.foreign import MOST
from engine.session.head import CALL_S, agent_command
from nodes.inventory import Inventory

if TYPE_CHECKING:
    from nodes.ssh import Connections

HOLD_S = 10.0
"""Seconds to wait for the head's answer about a lock."""
_RELEASE_S = 2.0
_RENEW_S = 30.0  # a sixth of the supervisor's `lease_s`


class Hold:
    """A lock on the head, see `hold`. `answer` is that of the head, empty if it gave none."""

    def __init__(self) -> None:
        self.answer = ""
        self._answered, self._over = threading.Event(), threading.Event()

    def run(self, inventory: Inventory, command: str, answer_s: float) -> None:
        """Hold the lock until `release`, in a thread."""
        try:
            asyncio.run(self._converse(inventory, command, answer_s))
        finally:
            self._answered.set()

    async def _converse(self, inventory: Inventory, command: str, answer_s: float) -> None:
        # The head does not answer, or is removed while the lock is held.
        with contextlib.suppress(NodeError, TimeoutError):
            async with (
                asyncio.timeout(answer_s) as limit,
                _connect(inventory) as connections,
                connections.converse(inventory.nodes[0], command) as talk,
            ):
                self.answer = (await talk.line(MOST)).decode(errors="replace").strip()
                limit.reschedule(None)
                self._answered.set()
                await asyncio.to_thread(self._over.wait)

    def wait(self) -> None:
        """Wait for the head's answer."""
        self._answered.wait()

    def release(self) -> None:
        """Release the lock."""
        self._over.set()


@contextlib.contextmanager
def hold(run_id: str, inventory: Inventory, what: str, answer_s: float = HOLD_S) -> Iterator[str]:
    """Hold a lock of the cluster (agent/head/cluster_locks.py) during the block; yield the answer.

    It is empty if the head does not answer within `answer_s` or does not have the run.
    """
    held = Hold()
    command = agent_command("hold", run_id, what)
    thread = threading.Thread(target=held.run, args=(inventory, command, answer_s), daemon=True)
    thread.start()
    held.wait()
    try:
        yield held.answer
    finally:
        held.release()
        thread.join(_RELEASE_S)  # a head that was removed does not say goodbye


@contextlib.contextmanager
def prevent_power_off(run_id: str, inventory: Inventory) -> Iterator[None]:
    """Keep the run's nodes powered on while the caller destroys the cluster.

    Acknowledge to the supervisor every _RENEW_S seconds. When that ends, because the caller is
    done or has died, the nodes power off after `lease_s` (engine/agent/link/times.py).
    """
    ended = threading.Event()

    async def renew() -> None:
        while not ended.is_set():
            with contextlib.suppress(
                NodeError
            ):  # parts of the path to the head are removed already
                async with _connect(inventory) as connections:
                    while not ended.is_set():
                        await connections.run(
                            inventory.nodes[0], agent_command("send", run_id, "ack"), timeout=CALL_S
                        )
                        await asyncio.to_thread(ended.wait, _RENEW_S)
            await asyncio.to_thread(ended.wait, 1.0)

    renewing = threading.Thread(target=lambda: asyncio.run(renew()), name="lease", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join(CALL_S)


def _connect(inventory: Inventory) -> "AbstractAsyncContextManager[Connections]":
    # asyncssh takes 0.1 s of CPU, and most clients of a run take no lock before its end.
    from nodes.ssh import connect  # noqa: PLC0415

    return connect(inventory)
