"""Find a run that a command names: in this machine's history, a team's bucket, or on a head."""

from typing import TYPE_CHECKING

from config.errors import GpuctlError, InputError

if TYPE_CHECKING:
    from cli.output import Output
    from engine.record.events import FirstEvent
    from engine.record.history import RunRecord
    from nodes.inventory import Inventory
    from operations.chosen_target import ChosenTarget


def chosen_run(here: "ChosenTarget", name: str | None, out: "Output") -> "RunRecord":
    """Return the run of this id or name; without one the newest, and say on stderr which it is.

    If the run is over and only the team's bucket has its journal, this machine has it afterwards.
    """
    from cli.shared_journals import fetch_journal
    from engine.record.history import History

    if name is None:
        with History(here.state / "runs") as history:
            newest = history.runs()[:1]
        if not newest:
            raise InputError("no run was started yet", "start one with `gpuctl run FILE`")
        name = newest[0].run_id
        out.complain(f"gpuctl: run {name}, the newest")
    entry = _find(here, name, out)
    fetch_journal(here, entry, out)
    return entry


def _find(here: "ChosenTarget", name: str, out: "Output") -> "RunRecord":
    """Return the run with this id, else the newest with this name; InputError for an unknown one.

    The team's bucket is asked about a run that this machine does not know, or not as over.
    """
    from cli.shared_runs import share_runs
    from config.bucket import bucket_of
    from engine.record.history import History

    def find() -> "RunRecord":
        with History(here.state / "runs") as history:
            return history.find(name)

    try:
        entry = find()
    except InputError:
        if bucket_of(here.backend) is None:
            raise
    else:
        if entry.is_over or bucket_of(here.backend) is None:
            return entry
    share_runs(here, out)
    return find()


def known_run(here: "ChosenTarget", name: str, out: "Output") -> "RunRecord":
    """Return the run with this id, else the newest with this name.

    A run has failed if its cluster has other machines now (`mark_replaced`). If neither this
    machine's history nor the team's bucket has the run, ask the heads of the clusters that this
    machine has a record of, and add the run to the history. Raises InputError if nobody knows it.
    """
    from cli.lost_head import mark_replaced
    from engine.record.history import History

    runs = here.state / "runs"
    try:
        entry = _find(here, name, out)
    except InputError:
        answer = _ask_heads(here, name, out)
        if answer is None:
            raise
        inventory, run = answer
        with History(runs) as history:
            history.begin(run, head_id=inventory.nodes[0].instance_id)
            return history.find(run.run_id)
    with History(runs) as history:
        return history.find(entry.run_id) if mark_replaced(here, [entry]) else entry


def _ask_heads(
    here: "ChosenTarget", name: str, out: "Output"
) -> "tuple[Inventory, FirstEvent] | None":
    """Return the run of that id or name, and its cluster's inventory.

    Of the runs of one head it is the newest with the name. Raises InputError if several heads have
    one: a job is root on its head, so a newer time proves nothing. A head that does not answer is
    a warning.
    """
    import asyncio

    if here.is_lab_down():
        return None
    inventories = _inventories(here)

    async def ask() -> list["FirstEvent | GpuctlError | None"]:
        return await asyncio.gather(*(_ask(inventory, name) for inventory in inventories))

    found: list[tuple[Inventory, FirstEvent]] = []
    for inventory, answer in zip(inventories, asyncio.run(ask()), strict=True):
        if isinstance(answer, GpuctlError):
            where = f"whether cluster {inventory.cluster} has a run {name} is unknown"
            out.warn(f"{where}: {answer.message}")
        elif answer is not None:
            found.append((inventory, answer))
    if len(found) > 1:
        raise _claimed_twice(name, found)
    return found[0] if found else None


def _claimed_twice(name: str, found: "list[tuple[Inventory, FirstEvent]]") -> InputError:
    """Return the error for a run that several clusters claim to have."""
    claims = " and ".join(
        f"{run.run_id} on cluster {inventory.cluster}" for inventory, run in found
    )
    ids = list(dict.fromkeys(run.run_id for _, run in found))
    if len(ids) == len(found):
        return InputError(
            f"several clusters have a run {name}: {claims}",
            "name the run by its id: " + " or ".join(ids),
        )
    queues = " and ".join(f"`gpuctl queue {inventory.cluster}`" for inventory, _ in found)
    return InputError(
        f"several clusters claim the same run: {claims}",
        f"an id belongs to one run, so one of the heads is wrong; {queues} show their runs",
    )


async def _ask(inventory: "Inventory", name: str) -> "FirstEvent | GpuctlError | None":
    import asyncio

    from config.errors import NodeError
    from engine.session.cluster_runs import ASK_S
    from engine.session.head import find_run

    try:
        async with asyncio.timeout(ASK_S):
            return await find_run(inventory, name)
    except TimeoutError:
        return NodeError(f"its head did not answer within {ASK_S:.0f} s", "")
    except GpuctlError as error:
        return error


def _inventories(here: "ChosenTarget") -> list["Inventory"]:
    """Return the inventories of the clusters that are ready."""
    from provision.records.record import load_inventory, records

    found = []
    for record in records(here.remembered()):
        try:
            found.append(load_inventory(record.name, here.cluster_target(record.name)))
        except InputError:  # it is not ready, so it has no run
            continue
    return found
