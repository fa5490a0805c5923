"""The newest samples of the runs on a cluster, which its head has in memory."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from config.identifiers import NodeName, RunId, RunName
from config.models import Value
from engine.analysis.metrics.usage import Usage, usage
from engine.contract.names import NEWEST
from engine.plan.remote_paths import ENTER_MEMORY
from engine.record.metrics_record import Sample
from engine.session.cluster_runs import ask_head
from nodes.inventory import Inventory

_WRONG = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class LiveRun(Value):
    """A run that goes on: `nodes` are its names in rank order, `usages` those with samples."""

    run_id: RunId
    name: RunName
    nodes: tuple[NodeName, ...]
    usages: tuple[Usage, ...]


async def live_runs(inventory: Inventory, run_id: str | None = None) -> tuple[LiveRun, ...]:
    """Ask the head for the runs on the cluster and what their nodes use; or for one run.

    A run whose nodes have sent no sample yet is missing. Raises NodeError if the head does not
    answer in time.
    """
    pattern = f"{shlex.quote(run_id)}.{NEWEST}" if run_id else f"*.{NEWEST}"
    # The file is a line, with the offset of the run's clock to the time since the head's start.
    question = (
        f"cut -d' ' -f1 /proc/uptime; {ENTER_MEMORY};"
        f' for run in {pattern}; do test ! -e "$run" || cat "$run" 2> /dev/null; done; exit 0'
    )
    return parse_live(await ask_head(inventory, question))


def parse_live(text: str) -> tuple[LiveRun, ...]:
    """Return the runs in the head's answer; a line that is torn is left out."""
    first, *lines = text.splitlines() or [""]
    try:
        uptime = float(first)
    except ValueError:  # the head answered nothing
        return ()
    runs = []
    for line in lines:
        try:
            runs.append(_run(json.loads(line), uptime))
        except _WRONG:  # another version's, being written, or hostile
            continue
    return tuple(runs)


def _run(run: Mapping[str, Any], uptime: float) -> LiveRun:
    usages, now = [], run["clock"] + uptime
    for rank, samples in run["samples"].items():
        *earlier, last = [Sample.model_validate(sample) for sample in samples]
        idle = {int(gpu): since for gpu, since in run["idle"].get(rank, {}).items()}
        # Clocks of nodes differ a little: an age is never negative.
        usages.append(usage(earlier[0] if earlier else None, last, idle, max(now, last.time)))
    return LiveRun(
        run_id=run["run_id"],
        name=run["name"],
        nodes=tuple(run["nodes"]),
        usages=tuple(sorted(usages, key=lambda each: each.rank)),
    )
