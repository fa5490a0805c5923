"""The user's files on their way: what travels, how it is sent, outputs that come back."""

import asyncio
from contextlib import nullcontext
from pathlib import Path

from config.errors import GpuctlError
from config.quantities import size
from engine.contract.plan import LaunchPlan
from engine.plan.source_tree import Tree
from engine.record.outputs_folder import have_come_back, outputs_folder
from engine.record.run_errors import KnownRun
from engine.session import head_locks
from engine.session.code_transfer import send_tree
from engine.session.outputs import fetch_outputs
from nodes.inventory import Inventory
from operations.watcher import Watcher


def send_code(plan: LaunchPlan, tree: Tree | None, inventory: Inventory, watcher: Watcher) -> None:
    """Send the files to all nodes of the run; return when each has them."""
    if tree is not None:
        asyncio.run(send_tree(tree, plan, inventory, watcher.report))


def fetch(run: KnownRun, inventory: Inventory, runs: Path, watcher: Watcher) -> Path | None:
    """Copy the run's outputs to this machine; return their folder, None if there are none.

    An error is only a warning: it must not keep the cluster. The nodes stay powered on meanwhile.
    """
    if not run.outputs:
        return None
    folder = outputs_folder(runs, run.run_id)
    if have_come_back(folder):  # another client has fetched them
        watcher.note(f"-- outputs are in {folder}")
        return folder
    try:
        is_destroyed = run.on_stop == "destroy"
        guard = head_locks.prevent_power_off(run.run_id, inventory)
        lease = guard if is_destroyed else nullcontext()
        with lease:
            fetched = asyncio.run(fetch_outputs(run, inventory, folder, watcher.report))
    except (GpuctlError, OSError) as error:
        watcher.warn(f"outputs did not come back: {error}")
        return None
    except KeyboardInterrupt:
        watcher.warn("outputs did not come back: interrupted")
        return None
    for failure in fetched.failures:
        watcher.warn(f"outputs did not come back: {failure}")
    for message in fetched.refused:
        watcher.warn(f"outputs of {message}")
    if fetched.files:
        watcher.note(f"-- outputs: {fetched.files} files, {size(fetched.size)} in {folder}")
        return folder
    if not fetched.failures:
        watcher.warn(f"no file matches outputs {', '.join(run.outputs)}")
    return None
