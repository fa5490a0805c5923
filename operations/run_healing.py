"""Make lost nodes again while a run waits for them: any client that follows the run does it.

The head has no credentials of AWS, so it can only wait.
"""

import asyncio
import shlex
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from config.errors import GpuctlError, InputError, NodeError
from config.event_loop import run_in_loop
from config.progress import silent
from config.target import Target
from engine.contract.event import Event
from engine.contract.head_events import AttemptStarted, RunFinished, WaitingForNodes
from engine.contract.names import HEALING, REMOVES, TAKEN
from engine.contract.plan import LaunchPlan
from engine.plan.remote_paths import run_paths
from engine.plan.secrets import registry_password
from engine.record.result import RunResult
from engine.session import head
from engine.session.cluster_runs import find_holders
from engine.session.code_transfer import pass_tree
from engine.session.container_images import pull, repository
from engine.session.head import Head, plans_of
from nodes.inventory import Inventory
from nodes.kept_connections import connect
from operations.chosen_target import ChosenTarget
from operations.watcher import Watcher

Prepare = Callable[[Inventory, Collection[str]], list[str]]
"""Brings to new nodes what runs need; returns the runs that must learn the nodes' addresses."""

Replace = Callable[[str, Target, Callable[[], None]], Inventory | None]
"""Makes the machines of a cluster again that AWS reports as gone; see `replace_missing`."""

ASK_S = 15.0
_NOT_RENTED = "gpuctl does not rent these machines, so it makes none again"


def replace_missing(cluster: str, target: Target, announce: Callable[[], None]) -> Inventory | None:
    """Make the cluster's missing machines again; return its nodes.

    `announce` is called before the first change. None if the cluster differs from its record, so
    that other machines would change too: nothing is made then.
    """
    # Pulumi and boto3 take 0.2 s of CPU, and most runs lose no node.
    from provision.healing import ClusterDiffers, replace_nodes  # noqa: PLC0415

    try:
        return replace_nodes(cluster, (), target, silent, announce=announce)
    except ClusterDiffers:
        return None


class Healing:
    """Makes lost nodes again when an event says that the run waits for them.

    `prepare` brings to new nodes what runs need there (see `preparation`), and returns the runs
    that must learn their addresses. `inventory` has the new nodes once they are ready. Healing
    begins after `first_pause_s`: a recorded event of long ago is followed by the next attempt at
    once. It is retried every `pause_s`: AWS takes seconds to minutes to report a machine as gone.
    `replace` makes the machines.
    """

    def __init__(
        self,
        chosen: ChosenTarget,
        run_id: str,
        inventory: Inventory,
        watcher: Watcher,
        prepare: Prepare,
        first_pause_s: float = 1.0,
        pause_s: float = 10.0,
        replace: Replace = replace_missing,
    ) -> None:
        self._replace = replace
        self._first_pause_s, self._pause_s = first_pause_s, pause_s
        self.inventory = inventory
        self._chosen, self._run_id, self._watcher, self._prepare = chosen, run_id, watcher, prepare
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._nodes = inventory.nodes
        self._awaited: set[str] = set()

    async def during(self, running: Coroutine[Any, Any, RunResult]) -> RunResult:
        """Return the result of the run; afterwards no machine is being made any more.

        Otherwise the removal of the cluster would find it locked.
        """
        try:
            return await running
        finally:
            self._over.set()
            await asyncio.to_thread(self.join)

    def join(self) -> None:
        """Wait until no machine is being made any more."""
        for thread in self._threads:
            thread.join()

    def see(self, event: Event) -> None:
        """Begin to heal, or end it, as the event of the run says."""
        if isinstance(event, WaitingForNodes):
            self._over.set()  # of an earlier wait
            over = threading.Event()
            self._over, self._awaited = over, set(event.nodes)
            thread = threading.Thread(
                target=self._heal, args=(event, over), name="healing", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        elif isinstance(event, RunFinished) or (
            # A run that goes on without a node uses it in a later attempt.
            isinstance(event, AttemptStarted)
            and self._awaited <= {node.name for node in event.nodes or self._nodes}
        ):
            self._over.set()

    def _heal(self, event: WaitingForNodes, over: threading.Event) -> None:
        """Try until the run goes on, or has the nodes."""
        said, pause = "", self._first_pause_s
        while not over.wait(pause):
            pause = self._pause_s
            try:
                if self._make_again(event.nodes):
                    return
            except GpuctlError as error:  # capacity may come, credentials may be renewed
                if str(error) != said:
                    said = str(error)
                    self._watcher.warn(f"{', '.join(event.nodes)} cannot be made again: {said}")

    def _make_again(self, names: Sequence[str]) -> bool:
        """Make the machines that AWS reports as gone; return whether the run has new nodes."""
        with head.hold(self._run_id, self.inventory, HEALING) as answer:
            if answer == REMOVES:
                raise InputError(f"another gpuctl removes cluster {self.inventory.cluster}", "")
            # A client of another machine makes them, and reports them.
            return answer != TAKEN and self._make(names)

    def _make(self, names: Sequence[str]) -> bool:
        began = time.monotonic()
        cluster, lost = self.inventory.cluster, ", ".join(names)
        store = self._chosen.cluster_store(cluster)
        if not self.inventory.is_rented:
            self._watcher.warn(f"{lost}: the run goes on when it answers again; {_NOT_RENTED}")
            return True
        if store.record(cluster) is None:
            return True  # somebody removes the cluster

        def announce() -> None:
            self._watcher.note(f"-- {lost}: gpuctl makes the lost machines again")

        inventory = self._replace(cluster, store.target, announce)
        if inventory is None:
            self._watcher.warn(
                f"cluster {cluster} differs from its record, so its nodes are not made again;"
                " run `gpuctl up` with its file"
            )
            return True
        self.inventory = inventory
        addresses = _new_nodes(inventory, names, self._run_id)
        if not addresses:
            return False
        for run_id in self._prepare(inventory, addresses.keys()):
            run_in_loop(Head(inventory, run_id).report_healed(addresses))
        took = time.monotonic() - began
        self._watcher.note(f"-- {', '.join(addresses)} ready again after {took:.0f}s")
        return addresses.keys() >= set(names)


def preparation(
    run_id: str, watcher: Watcher, passwords: Mapping[str, str] | None = None
) -> Prepare:
    """Return what brings to new nodes the code and images of the runs that use them.

    These are the run itself and those that wait for the nodes; the plans are on the head. A
    waiting run that lacks something there is a warning. `passwords` are those of registries that
    this client has, by the names of secrets; others are looked up as secrets are.
    """

    def prepare(inventory: Inventory, names: Collection[str]) -> list[str]:
        holders = run_in_loop(find_holders(inventory))
        waiting = [holder.run_id for holder in holders if set(holder.nodes) & set(names)]
        others = [other for other in waiting if other != run_id]
        plans = run_in_loop(plans_of([run_id, *others], inventory))
        for plan in plans.values():
            try:
                _bring(plan, inventory, names, passwords or {})
            except GpuctlError as error:
                if plan.run_id == run_id:
                    raise
                which = ", ".join(names)
                watcher.warn(f"{which} lacks what run {plan.run_id}, which waits, needs: {error}")
        # All runs: `on_stop: destroy` powers off nodes that a run does not use, too.
        return list(dict.fromkeys([run_id, *(holder.run_id for holder in holders)]))

    return prepare


def _bring(
    plan: LaunchPlan, inventory: Inventory, names: Collection[str], passwords: Mapping[str, str]
) -> None:
    """Bring the run's code, which the head has, and its image to these nodes."""
    nodes = tuple(node for node in plan.nodes if node.name in names)
    run_in_loop(pass_tree(plan, inventory, [node.name for node in nodes]))
    image = plan.image
    if image is None or not nodes:
        return
    if image.digest:  # the tag may mean another image by now
        exact = f"{repository(image.reference)}@{image.digest}"
        image = replace(image, reference=exact)
    secret = image.password_secret
    values = {secret: passwords.get(secret) or registry_password(image)} if secret else {}
    part = replace(plan, nodes=nodes, image=image)
    run_in_loop(pull(part, inventory, values, silent))


def _new_nodes(inventory: Inventory, names: Sequence[str], run_id: str) -> dict[str, str]:
    """Return name and address of the nodes on which the run has never been.

    The head itself looks for lost nodes that are the same machines.
    """
    command = shlex.join(["test", "!", "-e", run_paths(inventory, run_id).folder])

    async def ask() -> dict[str, str]:
        addresses: dict[str, str] = {}
        async with connect(inventory) as connections:
            for node in inventory.nodes:
                try:
                    if node.name in names:
                        answer = await connections.run(node, command, timeout=ASK_S)
                        if answer.exit_status == 0:
                            addresses[node.name] = node.private_ip
                except NodeError:  # it is not back
                    continue
        return addresses

    return run_in_loop(ask())
