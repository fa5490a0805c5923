"""`gpuctl health CLUSTER`: compare the nodes with their type, their file and each other."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import YesOption, chosen_target, output
from config.folded_names import fold
from operations import health as operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from operations.health import Health

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
    here, out = chosen_target(context), output(context)
    if deep and not yes:
        with out.progress() as view:
            operation.check_measurable(here, cluster, watcher=view)
        question = f"Measure cluster {cluster} for up to an hour? No run can use it meanwhile"
        out.confirm(question)
    with out.progress() as view:
        found = operation.check(here, cluster, deep=deep, watcher=view)
    document = {
        "cluster": cluster,
        "nodes": list(found.nodes),
        "rules": list(found.rules),
        "findings": [finding.model_dump() for finding in found.findings],
        "unfit": found.unfit,
    }
    out.show(document, _lines(found, out))
    if found.unfit:
        raise typer.Exit(UNFIT)


def _lines(health: "Health", out: "Output") -> "Iterator[str]":
    """Yield the findings as a table, equal ones of several nodes in one row, and the verdict."""
    of_nodes: dict[tuple[str, str, str, str], list[str]] = {}
    for finding in health.findings:
        key = (finding.severity, finding.text, finding.remedy, finding.source)
        of_nodes.setdefault(key, []).append(finding.node)
    rows = []
    order = sorted(of_nodes, key=lambda key: operation.SEVERITIES.index(key[0]))
    for severity, text, remedy, source in order:
        rows.append((severity, fold(of_nodes[severity, text, remedy, source]), text))
        rows.append(("", "", remedy))
        rows.append(("", "", f"source: {source}"))
    if rows:
        yield from out.table(("SEVERITY", "NODE", "FOUND, REMEDY, SOURCE"), rows)
    count = "1 node" if len(health.nodes) == 1 else f"{len(health.nodes)} nodes"
    verdict = f"not fit for jobs: {fold(health.unfit)}" if health.unfit else "all fit for jobs"
    yield f"{health.cluster}: {count}, {verdict}"
