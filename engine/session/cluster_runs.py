"""The runs on a cluster. The head knows them, also those that another machine started."""

import asyncio
import shlex
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import ValidationError

from config.bounds import Text
from config.errors import NodeError
from config.foreign import MOST, first_mistake
from config.identifiers import NodeName, RunId
from config.models import Value
from engine.contract.names import QUEUE
from engine.contract.verdict import REFUSED
from engine.plan.remote_paths import run_paths, runs_folder
from engine.record.events import FirstEvent, parse_event
from nodes.inventory import Inventory
from nodes.kept_connections import connect

ASK_S = 8.0
"""Seconds to wait for the head: ssh through a bastion or Session Manager takes some seconds."""


class Holder(Value):
    """A run that has nodes of a cluster, or waits for them. `nodes` are their names.

    `since` is the first time in its journal, None if that has none; `owner` is who started it.
    """

    run_id: RunId
    state: Literal["waiting", "started", "leaving"]
    nodes: tuple[NodeName, ...]
    since: datetime | None = None
    owner: Text = ""


async def ask_head(inventory: Inventory, question: str, ask_s: float = ASK_S) -> str:
    """Return what the head answers about its runs; `question` is a shell command.

    Raises NodeError if the head does not answer within `ask_s`.
    """
    head = inventory.nodes[0]
    try:
        async with asyncio.timeout(ask_s), connect(inventory) as connections:
            done = await connections.run(head, question)
    except TimeoutError:
        raise NodeError(f"{head.label} did not answer within {ask_s:.0f} s", "") from None
    if done.exit_status != 0:
        raise NodeError(f"{head.label} cannot report its runs: {done.complaint}", "")
    return done.stdout


async def find_holders(inventory: Inventory, ask_s: float = ASK_S) -> tuple[Holder, ...]:
    """Ask the head which runs are on the cluster; those that wait are in the order of the queue.

    Raises NodeError if the head does not answer within `ask_s`.
    """
    lines = (await ask_head(inventory, _question(inventory), ask_s)).splitlines()
    try:
        return tuple(
            _holder(entry, began) for entry, began in zip(lines[::2], lines[1::2], strict=True)
        )
    except ValueError as error:
        wrong = first_mistake(error) if isinstance(error, ValidationError) else "it is incomplete"
        complaint = (
            f"{inventory.nodes[0].label} cannot report its runs: its answer is malformed: {wrong}"
        )
        raise NodeError(complaint, "") from error


def _question(inventory: Inventory) -> str:
    """Return the shell command that prints two lines per run: its entry, and its first event.

    A run in the queue has the agent that it was started with.
    """
    runs = shlex.quote(runs_folder(inventory))
    return (
        f"cd {runs} 2> /dev/null || exit 0; test -e {QUEUE} || exit 0;"
        ' while read -r run rest; do test -e "$run/agent.pyz" &&'
        f' exec python3 -IS "$run/agent.pyz" queue {runs};'
        f" done < {QUEUE}; exit 0"
    )


def _holder(entry: str, began: str) -> Holder:
    run_id, state, names = entry.split(" ")
    fields: dict[str, Any] = {"run_id": run_id, "state": state, "nodes": names.split(",")}
    event = _first_event(began)
    if event is not None:
        fields |= {"since": datetime.fromtimestamp(event.time, UTC), "owner": event.owner}
    return Holder.model_validate(fields)


def _first_event(line: str) -> FirstEvent | None:
    """Return the event; None if the journal does not exist yet, or its disk was full."""
    try:
        event = parse_event(line) if len(line) <= MOST else None
    except ValueError:
        return None
    return event if isinstance(event, FirstEvent) else None


async def move_run(run_id: str, inventory: Inventory, place: int) -> bool:
    """Move the run to `place` (from 1) of the queue; return False if it does not wait."""
    return await _change(inventory, run_id, "move", str(place))


async def drop_run(run_id: str, inventory: Inventory) -> bool:
    """Take the run out of the queue, which ends it; return False if it does not wait."""
    return await _change(inventory, run_id, "drop")


async def _change(inventory: Inventory, run_id: str, *words: str) -> bool:
    """Call the agent of the run, which changes the queue; return whether it did."""
    folder = run_paths(inventory, run_id).folder
    command, *rest = words
    call = shlex.join(["python3", "-IS", f"{folder}/agent.pyz", command, folder, *rest])
    async with connect(inventory) as connections:
        done = await connections.run(
            inventory.nodes[0],
            f"test -e {shlex.quote(folder)} || exit {REFUSED}; {call}",
            timeout=ASK_S,
        )
    if done.exit_status not in (0, REFUSED):
        raise NodeError(f"{inventory.nodes[0].name} cannot change the queue: {done.complaint}", "")
    return done.exit_status == 0


def node_load(holders: tuple[Holder, ...]) -> dict[str, int]:
    """Return the number of runs that hold each node or wait for it."""
    names = [name for holder in holders for name in holder.nodes]
    return {name: names.count(name) for name in set(names)}
