"""The end of single machines, which others replace."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import WaiterError

from config.errors import CloudError, InputError
from infra.stack.changes import Plan
from provision.aws.clients import aws_errors

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_DELAY_S, _TRIES = 3, 400
"""How often AWS is asked whether a machine has ended: large GPU instances take minutes."""


def terminate(ec2: "EC2Client", ids: Sequence[str]) -> None:
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
            "repeat the command later",
        ) from error


def check_others_stay(plan: Plan, cluster: str) -> None:
    """Raise InputError if the plan to make ended machines again changes other nodes too."""
    if not plan.only_adds:
        raise InputError(
            f"cluster {cluster} was changed meanwhile, so that other nodes would change too",
            "run `gpuctl up` with its file: it makes the ended machines again",
        )
