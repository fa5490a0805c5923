"""`gpuctl health CLUSTER`: compare the nodes with their type, their file and each other."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import YesOption, chosen_target, output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cli.output import Output
    from config.target import Target
    from nodes.inventory import Inventory
    from operations.chosen_target import ChosenTarget
    from provision.health.model import Finding
    from provision.records.record import ClusterRecord

UNFIT = 1
"""The exit code if a node is not fit for jobs."""


def health(
    context: typer.Context,
    cluster: ClusterArgument,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Measure too: DCGM's diagnostic, NCCL on each node over the network, all pairs."
            " No run can use the cluster meanwhile.",
        ),
    ] = False,
    yes: YesOption = False,
) -> None:
    """Check which nodes are fit for jobs.

    It compares GPUs, driver, fabric manager, NVLink, memory errors, EFA, versions, clock, names and
    disks with the type, the file and the other nodes. The exit code is 0 if every node is fit for
    jobs, 1 if one is not, 125 if gpuctl itself failed.

    $ gpuctl health demo
    $ gpuctl health demo --json
    $ gpuctl health demo --deep
    """
    import asyncio

    from provision.health.rules import DEEP_RULES, RULES

    here, out = chosen_target(context), output(context)
    target = here.cluster_target(cluster)
    there = nodes_of(cluster, target, out)
    if deep:
        _confirm(here, there, out, yes=yes)
    found = asyncio.run(check(there, target))
    if deep:
        found += _measure(there, target, out)
    names = [node.name for node in there.nodes]
    document = {
        "cluster": cluster,
        "nodes": names,
        "rules": [rule.id for rule in (*RULES, *(DEEP_RULES if deep else ()))],
        "findings": [finding.model_dump() for finding in found],
        "unfit": unfit(found),
    }
    out.show(document, lines(cluster, names, found, out))
    if unfit(found):
        raise typer.Exit(UNFIT)


def nodes_of(cluster: str, target: "Target", out: "Output") -> "Inventory":
    """Return the cluster's nodes; say so if its last `up` failed."""
    from provision.existing_nodes import existing_nodes

    there = existing_nodes(cluster, target)
    record = _record(there, target)
    if record.status == "failed":
        out.warn(
            f"the last `gpuctl up` of {cluster} failed ({record.problem}); another `gpuctl up` or"
            " `gpuctl heal` makes it ready"
        )
    return there


async def check(there: "Inventory", target: "Target") -> "tuple[Finding, ...]":
    """Return what the rules find on all nodes."""
    from nodes.kept_connections import connect
    from provision.setup.node_health import full_check

    record = _record(there, target)
    is_ready = record.status != "failed"
    async with connect(there) as connections:
        return await full_check(connections, there, record.resolved, is_ready=is_ready)


def _record(there: "Inventory", target: "Target") -> "ClusterRecord":
    """Return the cluster's record; its inventory was found by the same one."""
    from provision.records.record import read

    record = read(there.cluster, target)
    assert record is not None
    return record


def _confirm(here: "ChosenTarget", there: "Inventory", out: "Output", *, yes: bool) -> None:
    """Ask before nodes are measured; InputError if a run uses them, or if they are not ready."""
    from config.errors import InputError
    from operations.cluster_occupancy import check_free

    if _record(there, here.cluster_target(there.cluster)).status == "failed":
        raise InputError(
            f"cluster {there.cluster} is not ready, and --deep runs jobs on it",
            "check it without --deep, or repeat `gpuctl up` first",
        )

    reason, hint = "--deep measures its nodes", "wait for its end (`gpuctl wait {run}`)"
    check_free(here, there.cluster, reason, hint, out.progress())
    question = f"Measure cluster {there.cluster} for up to an hour? No run can use it meanwhile"
    out.confirm(question, yes)


def _measure(there: "Inventory", target: "Target", out: "Output") -> "tuple[Finding, ...]":
    """Return what the measurements find: DCGM and NCCL on each node, then all pairs."""
    import asyncio

    from nodes.kept_connections import connect
    from provision.setup.node_health import deep_check

    slow = _slow(there, target, out)
    gpus = there.nodes[0].gpus
    if gpus:
        out.note(f"-- DCGM's diagnostic and NCCL's loop-back on {len(there.nodes)} nodes")

    async def check() -> "tuple[Finding, ...]":
        async with connect(there) as connections:
            return await deep_check(connections, there, _record(there, target).resolved, slow)

    return asyncio.run(check())


def _slow(there: "Inventory", target: "Target", out: "Output") -> dict[str, str]:
    """Return the nodes that a bisect names, with what it says; none for a single node."""
    from engine.analysis.bisect.report import describe
    from engine.analysis.bisect.rounds import MOST_NODES
    from operations.bisect import LARGEST, measure_nodes

    if not 2 <= len(there.nodes) <= MOST_NODES:
        return {}
    found = measure_nodes(there, target.runs, LARGEST, out.progress())
    return {
        found.nodes[place]: describe(suspect, found.nodes)
        for suspect in found.suspects
        for place in suspect.nodes
    }


def unfit(found: "Sequence[Finding]") -> list[str]:
    """Return the nodes that no job should use."""
    return list(dict.fromkeys(finding.node for finding in found if finding.is_grave))


def lines(
    cluster: str, names: "Sequence[str]", found: "Sequence[Finding]", out: "Output"
) -> "Iterator[str]":
    """Yield the findings as a table, equal ones of several nodes in one row, and the verdict."""
    from nodes.names import fold
    from provision.health.model import SEVERITIES

    of_nodes: dict[tuple[str, str, str, str], list[str]] = {}
    for finding in found:
        key = (finding.severity, finding.text, finding.remedy, finding.source)
        of_nodes.setdefault(key, []).append(finding.node)
    rows = []
    order = sorted(of_nodes, key=lambda key: SEVERITIES.index(key[0]))
    for severity, text, remedy, source in order:
        rows.append((severity, fold(of_nodes[severity, text, remedy, source]), text))
        rows.append(("", "", remedy))
        rows.append(("", "", f"source: {source}"))
    if rows:
        yield from out.table(("SEVERITY", "NODE", "FOUND, REMEDY, SOURCE"), rows)
    count = "1 node" if len(names) == 1 else f"{len(names)} nodes"
    bad = unfit(found)
    verdict = f"not fit for jobs: {fold(bad)}" if bad else "all fit for jobs"
    yield f"{cluster}: {count}, {verdict}"
