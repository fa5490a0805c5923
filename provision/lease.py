"""The lease of a cluster: when its machines power off, and how that moves.

The timers on the machines decide, also with the client gone and the network cut. The record and the
tags of the machines only remember them. Others judge by a tag whether a machine should have ended,
so it is at most the minutes of a boot earlier than the timer.
"""

import asyncio
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from config.command_text import command_text
from config.errors import GpuctlError, InputError, Interrupted, NodeError
from config.event_loop import run_in_loop
from config.folded_names import fold
from config.target import Target
from nodes.answers import Completed
from nodes.inventory import Inventory
from nodes.ssh import connect
from provision.aws.clients import client
from provision.aws.instances import end_of, write_ends
from provision.aws.resources import ALIVE, find_instances
from provision.billing.cost import check_until, hourly_usd
from provision.setup.lease.units import SECONDS_LEFT, request_end, set_end
from provision.setup.machines import BASTION, Answers, machine_names, on_all, raise_failures
from provision.state.record import ClusterRecord, Lease
from provision.state.store import ClusterStore

LONGEST_S = 366 * 86400


@dataclass(frozen=True)
class Extension:
    """A lease that was moved: its end before and now, and the machines that power off then."""

    cluster: str
    before: datetime
    end: datetime
    machines: tuple[str, ...]


def extend(name: str, seconds: int, target: Target) -> Extension:
    """Move the end of the cluster's lease by `seconds` on all its machines, and record it.

    First every machine is asked for its end: nothing changes if one does not answer. All machines
    get the same end, the latest one plus `seconds`. Raises InputError for a cluster without a lease
    or over its budget, NodeError if a machine cannot be reached or keeps its old end, CloudError if
    the tags cannot be written, before any timer moves.
    """
    store = ClusterStore(target)
    with store.lock(name, "gpuctl extend"):
        inventory, record = store.inventory(name), store.known_record(name)
        if record.resolved.cluster.lifetime is None:
            raise InputError(
                f"cluster {name} has no lease: it does not end by itself",
                "set lifetime.max in its file; the next `gpuctl up` then replaces its nodes",
            )
        end = run_in_loop(_move(inventory, record, seconds, target))
        lease = Lease(end=end, moved=datetime.now(UTC))
        store.write(record.model_copy(update={"lease": lease}))
    before = end - timedelta(seconds=seconds)
    return Extension(name, before, end, tuple(machine_names(inventory)))


def note_launches(record: ClusterRecord, target: Target) -> None:
    """Write the ends of machines that have none yet into their tags: `max` after their launch.

    A client may die before the machines can be asked. They end later, because their timers count
    from their boot: `note_ends` corrects that.
    """
    lifetime = record.resolved.cluster.lifetime
    if lifetime is None:
        return
    instances = find_instances(client(target, "ec2"), record.name, record.id)
    own = timedelta(seconds=lifetime.max)
    new = (
        instance for instance in instances if instance.state in ALIVE and end_of(instance) is None
    )
    write_ends({machine.id: machine.since + own for machine in new if machine.since}, target)


def note_ends(inventory: Inventory, record: ClusterRecord, target: Target) -> ClusterRecord:
    """Write the ends that the machines report into their tags; return the record with the first.

    They are rounded up to a minute, so that machines of one launch have one end. A machine that
    does not answer keeps its tag; if none does, the record keeps its lease.
    """
    if record.resolved.cluster.lifetime is None and record.lease is None:
        return record
    answers, ids = run_in_loop(_ask(inventory)), _ids(inventory)
    left = {ids[name]: _number(answer) for name, answer in answers.items()}
    now = datetime.now(UTC)
    ends = {
        machine: datetime.fromtimestamp(-(-(now.timestamp() + seconds) // 60) * 60, UTC)
        for machine, seconds in left.items()
        if seconds
    }
    write_ends(ends, target)
    if not ends:
        return record
    return record.model_copy(update={"lease": Lease(end=min(ends.values()), moved=now)})


async def _ask(inventory: Inventory) -> Answers:
    """Return the answers of the machines about their ends; none if the bastion does not answer."""
    try:
        async with connect(inventory) as connections:
            return await on_all(connections, inventory, SECONDS_LEFT, SECONDS_LEFT)
    except NodeError:
        return {}


def join(inventory: Inventory, new: Collection[str], target: Target) -> None:
    """Let the machines `new` end when the others of the cluster do, if it has a lease.

    Their own timers count from their launch, and `gpuctl extend` may have moved those of the
    others. Raises NodeError if a machine does not answer or keeps its end.
    """
    store = ClusterStore(target)
    with store.lock(inventory.cluster, "gpuctl heal"):
        record = store.known_record(inventory.cluster)
        if record.resolved.cluster.lifetime is None:
            return
        if not set(new) < set(machine_names(inventory)):
            return
        left = run_in_loop(_join(inventory, new))
        now = datetime.now(UTC)
        end = now + timedelta(seconds=max(left))
        write_ends(dict.fromkeys((_ids(inventory)[name] for name in new), end), target)
        lease = Lease(end=now + timedelta(seconds=min(left)), moved=now)
        store.write(record.model_copy(update={"lease": lease}))


async def _join(inventory: Inventory, new: Collection[str]) -> list[int]:
    """Let the machines `new` end with the last of the others; return the seconds of the others."""
    async with connect(inventory) as connections:
        answers = await on_all(connections, inventory, SECONDS_LEFT, SECONDS_LEFT)
        left = _seconds_left({name: answer for name, answer in answers.items() if name not in new})
        nodes = tuple(node for node in inventory.nodes if node.name in new)
        joining = inventory.model_copy(update={"nodes": nodes, "bastion": None})
        moved = await on_all(connections, joining, set_end(max(left)), "")
        raise_failures(moved, "its end is not that of the others", "`gpuctl extend` sets one end")
        return left


async def _move(
    inventory: Inventory, record: ClusterRecord, seconds: int, target: Target
) -> datetime:
    """Let all machines end `seconds` later than the last one would; return when that is."""
    async with connect(inventory) as connections:
        answers = await on_all(connections, inventory, SECONDS_LEFT, SECONDS_LEFT)
        after = max(_seconds_left(answers)) + seconds
        if after > LONGEST_S:
            days = after // 86400
            raise InputError(
                f"cluster {record.name} would end in {days} days, at most 366 are allowed",
                "extend it by less",
            )
        hint = "extend it by less, or allow more in its file and repeat `gpuctl up`"
        resolved = record.resolved
        check_until(resolved.cluster, hourly_usd(resolved), record.created, after, hint)
        end = datetime.now(UTC) + timedelta(seconds=after)
        write_ends(dict.fromkeys(_ids(inventory).values(), end), target)
        try:
            moved = await on_all(connections, inventory, set_end(after), request_end(after))
        except asyncio.CancelledError:  # Ctrl-C
            raise Interrupted(
                f"interrupted: some machines of {record.name} may have the new end, others the old",
                f"{command_text('gpuctl extend {} 1m', record.name)} gives all of them one end",
            ) from None
        raise_failures(
            moved,
            "its end did not move",
            f"repeat {command_text('gpuctl extend {} 1m', record.name)} for all",
        )
    return end


def _seconds_left(answers: Answers) -> list[int]:
    """Return the seconds that each machine has left; raise NodeError if one has no answer."""
    raise_failures(answers, "no answer about the end", "no machine was changed")
    left = {name: _number(answer) for name, answer in answers.items()}
    unlimited = [name for name, seconds in left.items() if seconds is None]
    if unlimited:
        raise NodeError(
            f"{fold(unlimited)}: no timer that ends a lease", "no machine was changed; repeat `up`"
        )
    return [seconds for seconds in left.values() if seconds is not None]


def _number(answer: Completed | GpuctlError) -> int | None:
    """Return the seconds in the answer; None if it is an error, or if the machine has no timer."""
    text = answer.stdout.strip() if isinstance(answer, Completed) else ""
    return int(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else None


def _ids(inventory: Inventory) -> dict[str, str]:
    """Return the instance ids of the machines by their names."""
    ids = {node.name: node.instance_id for node in inventory.nodes}
    return ids | ({BASTION: inventory.bastion.instance_id} if inventory.bastion else {})
