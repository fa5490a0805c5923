"""The options of a run that the Python API starts or plans."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from config.loading import load
from config.loading.overrides import Overrides, Substitutions
from gpuctl.calls import Caller, TargetOptions
from operations import prepared_run
from operations.prepared_run import OnStop, PreparedRun

__all__ = ["RunOptions", "RunPlanOptions", "prepare"]


class RunOptions(TypedDict, total=False):
    """What overrides the run file, and how the run starts.

    `env` sets variables (`NAME=VALUE`), `nodes` the number of nodes, `on_stop` says whether the
    cluster is kept or destroyed. `values` are those of a manifest's `${NAME}` (`NAME=VALUE`),
    `runtimes` is the folder of the runtimes that it names. `no_image` runs on the nodes themselves.
    `strict` refuses unknown keys in dstack's files. Outputs come back to `outputs/RUN`, by default
    to `outputs/RUN` next to the run file. With `queue` the run waits while other runs
    have its nodes.
    """

    env: Iterable[str]
    nodes: int | str
    values: Iterable[str]
    runtimes: Path
    on_stop: OnStop
    no_image: bool
    strict: bool
    outputs: str | Path
    queue: bool


class RunPlanOptions(RunOptions, TargetOptions, total=False):
    """The options of a run's plan, and its target."""


def prepare(
    caller: Caller,
    file: Path,
    options: RunOptions | RunPlanOptions,
    *,
    cluster: str | None = None,
    inventory: Path | None = None,
    preview: bool = False,
) -> PreparedRun:
    """Return the run of the file as it would start on the cluster, or on a saved inventory.

    A `preview` needs no cluster, and asks no node.
    """
    nodes = options.get("nodes")
    values = Substitutions(tuple(options.get("values", ())), options.get("runtimes"))
    overrides = Overrides(
        tuple(options.get("env", ())), None if nodes is None else str(nodes), values
    )
    strict = options.get("strict", False)
    outputs = options.get("outputs")
    return prepared_run.prepare(
        caller.target,
        load.load_run(file, overrides, caller.watcher.warn, is_strict=strict),
        file,
        cluster=cluster,
        inventory=None if inventory is None else prepared_run.saved_inventory(inventory),
        on_stop=options.get("on_stop"),
        no_image=options.get("no_image", False),
        outputs=None if outputs is None else Path(outputs),
        queue=options.get("queue", False),
        preview=preview,
    )
