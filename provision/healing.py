"""Replace single nodes of a cluster; the others, their ranks and the cluster's resources stay."""

from collections.abc import Sequence

from config.errors import InputError
from config.progress import Progress, Reporter
from config.target import Target
from nodes.inventory import Inventory, Node
from provision.access import check_new_machines
from provision.aws.clients import client
from provision.aws.termination import terminate
from provision.lease import join
from provision.records.record import read, unknown_cluster
from provision.up import plan, up


def replace(name: str, nodes: Sequence[Node], target: Target, report: Reporter) -> Inventory:
    """Terminate the machines of these nodes, and make them again; return the new inventory.

    A node keeps its name and rank, placement group, and claim or reservation; its address, host key
    and instance are new. All nodes are checked as by `up`, and the new ones end when the others do.
    The other machines stay as they are: InputError, before anything ends, if the cluster differs
    from its record.
    """
    record = read(name, target)
    if record is None:
        raise unknown_cluster(name, ())
    key = check_new_machines(name, target, [node.name for node in nodes])
    cluster = record.resolved.cluster
    if not plan(cluster, target, report).plan.only_adds:
        raise InputError(
            f"cluster {name} differs from its record, so that other nodes would change too",
            "run `gpuctl up` with its file first",
        )
    ec2 = client(target, "ec2")
    for node in nodes:
        report(Progress("destroy", node.name, "running", node.instance_id))
    terminate(ec2, [node.instance_id for node in nodes])
    for node in nodes:
        report(Progress("destroy", node.name, "done", node.instance_id))
    anew = plan(cluster, target, report)
    if not anew.plan.only_adds:
        raise InputError(
            f"cluster {name} was changed meanwhile, so that other nodes would change too",
            "run `gpuctl up` with its file: it makes the ended machines again",
        )
    inventory = up(anew, target, report, key)
    join(inventory, [node.name for node in nodes], record, target)
    return inventory
