"""gpuctl's commands in a process to be killed. Nothing boots: the API and Pulumi's engine alone."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.errors import GpuctlError
from config.progress import Progress, silent
from config.target import Target
from nodes.inventory import Inventory
from provision import up as life
from provision.down import down
from provision.gc import collect, survey
from provision.healing import replace_nodes
from provision.setup.nodes_key import NodesKey
from provision.state.store import ClusterStore
from tests.leaks.points import Command, Shape
from tests.leaks.run_end import end_run
from tests.provision.unbooted import nothing_boots

NAME = "leaky"
MARK = "GPUCTL_LEAK_POINT"
"""The variable that all processes of a point have in their environment."""

SHAPES: dict[Shape, dict[str, Any]] = {
    "bastion": {"instance_type": "c6i.large"},
    "efa": {"instance_type": "p4d.24xlarge"},
    "shared": {"instance_type": "c6i.large", "storage": {"shared": {"type": "efs"}}},
}
NODES = 4

Does = Command | Literal["gc"]


def carry_out(does: Does, shape: Shape, target: Target, folder: Path) -> None:
    """Carry the command out; its output is in `does.log` of the folder, its scratch in `tmp`."""
    os.setsid()
    os.environ |= {MARK: str(folder), "TMPDIR": str(folder / "tmp")}
    tempfile.tempdir = None
    log = os.open(folder / f"{does}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    try:
        _do(does, shape, target)
    except GpuctlError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(1)


def _do(does: Does, shape: Shape, target: Target) -> None:
    if does == "up":
        values = {"name": NAME, "nodes": NODES, **SHAPES[shape]}
        plan = life.plan(Cluster.model_validate(values), target, silent)
        life.up(plan, target, say, boot=nothing_answers)
    elif does == "heal":
        there = ClusterStore(target).inventory(NAME)
        replace_nodes(NAME, there.nodes[1:2], target, say, boot=nothing_answers)
    elif does == "run":
        end_run(ClusterStore(target).inventory(NAME), target)
    elif does == "down":
        down(NAME, target, say)
    else:
        found = survey(target, (target.region,), say).clusters
        ours = [one for one in found if one.verdict in ("orphaned", "doubtful")]
        problems = [one.problem for one in collect(ours, target, say) if one.problem]
        if problems:
            sys.exit("; ".join(problems))


def nothing_answers(
    resolved: Resolved, inventory: Inventory, key: NodesKey, *others: Any, **_: bool
) -> Inventory:
    """Return the inventory at once, with a bastion that nobody has to wait for.

    It stands for `bootstrap`. ssh is refused on this machine, where an
    address of the region would let it wait for half a minute.
    """
    there = nothing_boots(resolved, inventory, key, *others)
    assert there.bastion is not None
    nobody = there.bastion.model_copy(update={"address": "127.0.0.1", "port": 1})
    return there.model_copy(update={"bastion": nobody})


def say(step: Progress) -> None:
    """Write a line for a step."""
    sys.stdout.write(f"{step.stage}: {step.subject} {step.state} {step.detail}\n")
    sys.stdout.flush()
