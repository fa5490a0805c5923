"""Replace single nodes of a cluster; the others, their ranks and the cluster's resources stay."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import WaiterError

from config.errors import CloudError, InputError
from config.progress import Progress, Reporter
from config.target import Target
from nodes.inventory import Inventory, Node
from provision.aws.clients import aws_errors, client
from provision.records.record import read, unknown_cluster
from provision.up import plan, up

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_DELAY_S, _TRIES = 3, 400
"""How often AWS is asked whether a machine has ended: large GPU instances take minutes."""


def replace(name: str, nodes: Sequence[Node], target: Target, report: Reporter) -> Inventory:
    """Terminate the machines of these nodes, and make them again; return the new inventory.

    A node keeps its name and rank, placement group, and claim or reservation; its address, host key
    and instance are new, and all nodes are checked as by `up`. The other machines stay as they are:
    InputError, before anything ends, if the cluster differs from its record.
    """
    record = read(name, target)
    if record is None:
        raise unknown_cluster(name, ())
    cluster = record.resolved.cluster
    if not plan(cluster, target, report).plan.only_adds:
        raise InputError(
            f"cluster {name} differs from its record, so that other nodes would change too",
            "run `gpuctl up` with its file first",
        )
    ec2 = client(target, "ec2")
    for node in nodes:
        report(Progress("destroy", node.name, "running", node.instance_id))
    _terminate(ec2, [node.instance_id for node in nodes])
    for node in nodes:
        report(Progress("destroy", node.name, "done", node.instance_id))
    anew = plan(cluster, target, report)
    if not anew.plan.only_adds:
        raise InputError(
            f"cluster {name} was changed meanwhile, so that other nodes would change too",
            "run `gpuctl up` with its file: it makes the ended machines again",
        )
    return up(anew, target, report)


def _terminate(ec2: "EC2Client", ids: list[str]) -> None:
    """End the machines and wait for it; those that AWS no longer knows have ended."""
    known = []
    for instance_id in ids:
        try:
            with aws_errors():
                ec2.terminate_instances(InstanceIds=[instance_id])
        except CloudError as error:
            if error.code != "InvalidInstanceID.NotFound":
                raise
        else:
            known.append(instance_id)
    if not known:
        return
    try:
        ec2.get_waiter("instance_terminated").wait(
            InstanceIds=known, WaiterConfig={"Delay": _DELAY_S, "MaxAttempts": _TRIES}
        )
    except WaiterError as error:
        raise CloudError(
            f"AWS has not ended {', '.join(known)} within 20 minutes: {error}",
            "repeat `gpuctl heal` later",
        ) from error
