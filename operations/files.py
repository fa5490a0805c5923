"""Files between this machine and the nodes of a cluster: copies, a run's code, its outputs."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from config.errors import GpuctlError, InputError
from config.event_loop import run_in_loop
from config.quantities import size
from engine.contract.plan import LaunchPlan
from engine.plan.source_tree import Tree
from engine.record.outputs_folder import have_come_back, outputs_folder
from engine.record.run_errors import KnownRun
from engine.session import head
from engine.session.code_transfer import send_tree
from engine.session.outputs import fetch_outputs
from nodes.copy import copy_from, copy_to
from nodes.inventory import Inventory, named_nodes
from operations.chosen_target import ChosenTarget
from operations.watcher import Watcher


@dataclass(frozen=True)
class Copied:
    """The nodes to or from which the copy is whole, and the error of each other one."""

    nodes: tuple[str, ...]
    errors: dict[str, GpuctlError]


def copy(chosen: ChosenTarget, cluster: str, source: str, target: str) -> Copied:
    """Copy a file or a folder from nodes to this machine, or to nodes.

    `source` or `target` is NODES:PATH, where NODES is node3, node[0-3,5] or all. From several nodes
    each copy is in TARGET/NODE. As with `cp -r`, a folder that exists receives the source, and any
    other target is its new name.
    """
    from_nodes, from_path = _split(source)
    to_nodes, to_path = _split(target)
    if bool(from_nodes) == bool(to_nodes):
        raise InputError(
            "one of SOURCE and TARGET is on nodes, the other on this machine",
            "write NODES:PATH for the one on nodes (node0:/tmp/x), and ./x:y for a name with a ':'",
        )
    if to_nodes and not (Path(source).exists() or Path(source).is_symlink()):
        raise InputError(f"{source} does not exist", "correct the path")
    inventory = chosen.cluster_store(cluster).inventory(cluster)
    nodes = named_nodes(inventory, from_nodes or to_nodes)
    if from_nodes:
        answers = run_in_loop(copy_from(inventory, nodes, from_path, target))
    else:
        answers = run_in_loop(copy_to(inventory, nodes, Path(source), to_path))
    errors = {node.name: error for node in nodes if (error := answers[node.rank]) is not None}
    return Copied(tuple(node.name for node in nodes if node.name not in errors), errors)


def _split(text: str) -> tuple[str, str]:
    """Return nodes and path; the nodes are empty for a path of this machine."""
    nodes, colon, path = text.partition(":")
    return (nodes, path) if colon and "/" not in nodes else ("", text)


def send_code(plan: LaunchPlan, tree: Tree | None, inventory: Inventory, watcher: Watcher) -> None:
    """Send the files to all nodes of the run; return when each has them."""
    if tree is not None:
        run_in_loop(send_tree(tree, plan, inventory, watcher.report))


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
        guard = head.prevent_power_off(run.run_id, inventory)
        lease = guard if is_destroyed else nullcontext()
        with lease:
            fetched = run_in_loop(fetch_outputs(run, inventory, folder, watcher.report))
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
