"""`gpuctl health CLUSTER`: compare the nodes with their type, their file and each other."""

from typing import Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import YesOption, chosen_target, output
from cli.render import health as render
from config.errors import ExitCode
from operations import health as operation


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
    chosen, out = chosen_target(context), output(context)
    if deep and not yes:
        with out.progress() as view:
            operation.check_measurable(chosen, cluster, watcher=view)
        question = f"Measure cluster {cluster} for up to an hour? No run can use it meanwhile"
        out.confirm(question)
    with out.progress() as view:
        checked = operation.check(chosen, cluster, deep=deep, watcher=view)
    document = {
        "cluster": cluster,
        "nodes": list(checked.nodes),
        "rules": list(checked.rules),
        "findings": [finding.model_dump() for finding in checked.findings],
        "unfit": checked.unfit,
    }
    out.show(document, render.health_lines(checked, out))
    if checked.unfit:
        raise typer.Exit(ExitCode.FAILED)
