"""The removal of resources with a cluster's tag that Pulumi does not know.

If a client and its Pulumi engine are killed while AWS creates a resource, Pulumi's state has no
trace of it. gpuctl finds it by its tag, which every resource gets with its creation.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from botocore.exceptions import WaiterError

from config.command_text import command_text
from config.errors import CloudError, GpuctlError
from config.polling import Timeouts, poll, retry
from config.progress import Progress, Reporter, State
from config.target import Target
from provision.aws.clients import aws_errors, call_unless_gone, client
from provision.aws.guardduty import ENDPOINT, GROUP, delete_endpoints
from provision.aws.iam_roles import delete_identities
from provision.aws.resources import KINDS, Resource, find_all

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


_GONE = frozenset({"FileSystemNotFound", "MountTargetNotFound"})
_BUSY = frozenset(
    {"IncorrectFileSystemLifeCycleState", "IncorrectMountTargetState", "FileSystemInUse"}
)

_WAIT = Timeouts(20 * 60, 3)
"""botocore has no waiter for these services; FSx takes minutes to delete a file system."""


def delete_file_systems(target: Target, resources: list[Resource]) -> None:
    """Delete the file systems, all of one kind, and wait until they are gone.

    Their network interfaces have then left the subnet too.
    """
    service: Literal["efs", "fsx"] = "efs" if KINDS[resources[0].kind].service == "efs" else "fsx"
    aws = client(target, service)
    delete = _delete_efs if service == "efs" else _delete_lustre
    for resource in resources:
        delete(aws, resource)
    for resource in resources:
        _until_gone(partial(_describe, aws, service, resource.id), resource.id)


def _delete_efs(efs: Any, resource: Resource) -> None:
    """Delete the mount targets, then the file system: AWS refuses otherwise (FileSystemInUse)."""
    file_system_id = resource.id

    def targets() -> list[Any]:
        mounts: list[Any] = efs.describe_mount_targets(FileSystemId=file_system_id)["MountTargets"]
        return mounts

    for target in call_unless_gone(targets, _GONE) or []:
        _when_allowed(partial(efs.delete_mount_target, MountTargetId=target["MountTargetId"]))
    _until_gone(targets, f"the mount targets of {file_system_id}")
    _when_allowed(lambda: efs.delete_file_system(FileSystemId=file_system_id))


def _delete_lustre(fsx: Any, resource: Resource) -> None:
    """Delete the file system; AWS makes no final backup, because the request asks for none."""
    _when_allowed(lambda: fsx.delete_file_system(FileSystemId=resource.id))


def _describe(aws: Any, service: str, file_system_id: str) -> Any:
    if service == "efs":
        return aws.describe_file_systems(FileSystemId=file_system_id)["FileSystems"]
    return aws.describe_file_systems(FileSystemIds=[file_system_id])["FileSystems"]


def _is_busy(error: GpuctlError) -> bool:
    return isinstance(error, CloudError) and error.code in _BUSY


def _when_allowed(remove: Callable[[], Any]) -> None:
    """Call `remove` until AWS allows it; AWS deletes nothing that it is still creating."""
    retry(lambda: call_unless_gone(remove, _GONE), _is_busy, _WAIT)


def _until_gone(ask: Callable[[], Any], what: str) -> None:
    """Wait until `ask` finds nothing any more. Raises CloudError after 20 minutes."""
    if not poll(lambda: None if call_unless_gone(ask, _GONE) else True, _WAIT):
        raise CloudError(
            f"AWS did not remove {what} within 20 minutes", "repeat `gpuctl down` later"
        )


_STILL_USED = frozenset(
    {
        "DependencyViolation",
        "InvalidPlacementGroup.InUse",
        "InvalidIPAddress.InUse",
        "InvalidNetworkInterface.InUse",
        "VolumeInUse",
        "ResourceInUse",
        "IncorrectState",
    }
)
_INTERFACE_USED = "is currently in use"
"""A part of EC2's text about the interface of an instance, with the code InvalidParameterValue
(https://github.com/gruntwork-io/cloud-nuke/pull/1132, 2026-11-25)."""

RETRIES = 24
PAUSE_S = 5.0
"""Resources that an instance used are free some seconds after its termination, not at once."""


PASSES = 3
"""AWS lists changes with a delay; the last request of a killed Pulumi engine may arrive late."""


def sweep(target: Target, cluster: str, cluster_id: str, report: Reporter) -> tuple[str, ...]:
    """Remove all resources with the cluster's name and id; return them as `VPC vpc-0123`.

    Raises CloudError with the resources that could not be removed, after removing all others.
    """
    removed: dict[str, None] = {}
    for attempt in range(PASSES):
        resources = find_all(target, cluster, cluster_id=cluster_id)
        if not resources:
            return tuple(removed)
        if attempt:
            time.sleep(PAUSE_S)
        _sweep_once(target, resources, removed, report)
    if left := find_all(target, cluster, cluster_id=cluster_id):
        names = ", ".join(f"{resource.kind} {resource.id}" for resource in left)
        raise CloudError(
            f"AWS still has {names}", f"repeat {command_text('gpuctl down {}', cluster)} later"
        )
    return tuple(removed)


def _sweep_once(
    target: Target, resources: list[Resource], removed: dict[str, None], report: Reporter
) -> None:
    """Remove the resources kind by kind, and add each to `removed`.

    After a problem it waits for nothing more: what could not be removed goes on to use the rest.
    """
    problems: list[CloudError] = []
    ec2 = client(target, "ec2")
    for noun, kind in KINDS.items():
        ours = [resource for resource in resources if resource.kind == noun]
        # Kinds that take minutes to end, or depend on each other, are removed all at once.
        together = noun in (*_ALL_AT_ONCE, _FIREWALL) or kind.service in ("efs", "fsx", "iam")
        for batch in [ours] if together and ours else [[resource] for resource in ours]:
            subjects = [f"{noun} {resource.id}" for resource in batch]
            _report_all(report, subjects, "running")
            try:
                if kind.service in ("ec2", "guardduty"):
                    _remove(ec2, batch, 1 if problems else RETRIES)
                elif kind.service == "iam":
                    delete_identities(
                        target, [resource.id for resource in batch], noun == "IAM role"
                    )
                else:
                    delete_file_systems(target, batch)
            except CloudError as error:
                _report_all(report, subjects, "failed", error.message)
                # What an earlier problem left behind still uses this one: not a second problem.
                if not (problems and _is_still_used(error)):
                    problems.append(error)
            else:
                _report_all(report, subjects, "done")
                removed.update(dict.fromkeys(subjects))
    if problems:
        raise CloudError(
            "\n".join(error.message for error in problems), problems[0].hint, problems[0].code
        )


def _report_all(report: Reporter, subjects: list[str], state: State, detail: str = "") -> None:
    for subject in subjects:
        report(Progress("destroy", subject, state, detail))


def _remove(ec2: "EC2Client", batch: list[Resource], tries: int) -> None:
    """Remove the resources, all of one kind."""
    noun = batch[0].kind
    if noun in _ALL_AT_ONCE:
        with aws_errors():
            _ALL_AT_ONCE[noun](ec2, batch)
    elif noun == _FIREWALL:
        _delete_groups(ec2, batch, tries)
    else:
        _retry_while_used(lambda: _REMOVE[noun](ec2, batch[0]), tries)


def _unless_gone(remove: Callable[[], object]) -> None:
    _retry_while_used(remove, 1)


def _retry_while_used(remove: Callable[[], object], tries: int) -> None:
    """Call `remove` until no other resource uses its target; return if the target is gone."""
    for attempt in range(tries):
        try:
            with aws_errors():
                remove()
        except CloudError as error:
            if error.code.endswith(("NotFound", ".Unknown")):
                return
            if not _is_still_used(error) or attempt == tries - 1:
                raise
            time.sleep(PAUSE_S)
        else:
            return


def _is_still_used(error: CloudError) -> bool:
    return error.code in _STILL_USED or _INTERFACE_USED in error.message


def _terminate(ec2: "EC2Client", instances: list[Resource]) -> None:
    """Terminate the instances and wait for their end; large GPU instances take minutes."""
    ids = [instance.id for instance in instances]
    for start in range(0, len(ids), 200):
        ec2.terminate_instances(InstanceIds=ids[start : start + 200])
    for start in range(0, len(ids), 200):
        _wait(ec2, "instance_terminated", {"InstanceIds": ids[start : start + 200]})


def _delete_nat(ec2: "EC2Client", gateways: list[Resource]) -> None:
    ids = [gateway.id for gateway in gateways]
    for id_ in ids:
        ec2.delete_nat_gateway(NatGatewayId=id_)
    _wait(ec2, "nat_gateway_deleted", {"NatGatewayIds": ids})


def _wait(ec2: "EC2Client", waiter: str, what: dict[str, Any]) -> None:
    """Wait until AWS reports the end; at most 20 minutes, then CloudError."""
    try:
        ec2.get_waiter(waiter).wait(  # type: ignore[call-overload]
            **what, WaiterConfig={"Delay": 3, "MaxAttempts": 400}
        )
    except WaiterError as error:
        raise CloudError(
            f"AWS did not finish within 20 minutes: {error}", "repeat `gpuctl down` later"
        ) from error


def _release(ec2: "EC2Client", address: Resource) -> None:
    if association := address.attributes.get("AssociationId"):
        # The association is already gone if its gateway is.
        _unless_gone(lambda: ec2.disassociate_address(AssociationId=association))
    ec2.release_address(AllocationId=address.id)


def _delete_groups(ec2: "EC2Client", groups: list[Resource], tries: int) -> None:
    """Delete all rules, then the groups: AWS deletes no group that another one names."""
    with aws_errors():
        for group in groups:
            if rules := group.attributes.get("IpPermissions"):
                ec2.revoke_security_group_ingress(GroupId=group.id, IpPermissions=rules)
            if rules := group.attributes.get("IpPermissionsEgress"):
                ec2.revoke_security_group_egress(GroupId=group.id, IpPermissions=rules)
    for group in groups:
        _retry_while_used(partial(ec2.delete_security_group, GroupId=group.id), tries)


def _delete_route_table(ec2: "EC2Client", table: Resource) -> None:
    for association in table.attributes.get("Associations", ()):
        if not association.get("Main"):
            id_ = association["RouteTableAssociationId"]
            _unless_gone(partial(ec2.disassociate_route_table, AssociationId=id_))
    ec2.delete_route_table(RouteTableId=table.id)


def _delete_internet_gateway(ec2: "EC2Client", gateway: Resource) -> None:
    for attachment in gateway.attributes.get("Attachments", ()):
        vpc = attachment["VpcId"]
        _unless_gone(
            lambda vpc=vpc: ec2.detach_internet_gateway(  # type: ignore[misc]
                InternetGatewayId=gateway.id, VpcId=vpc
            )
        )
    gateway.attributes["Attachments"] = []
    ec2.delete_internet_gateway(InternetGatewayId=gateway.id)


_FIREWALL = "security group"

_ALL_AT_ONCE: dict[str, Callable[["EC2Client", list[Resource]], None]] = {
    "instance": _terminate,
    "NAT gateway": _delete_nat,
    ENDPOINT: lambda ec2, batch: delete_endpoints(ec2, [resource.id for resource in batch]),
}

_REMOVE: dict[str, Callable[["EC2Client", Resource], Any]] = {
    "capacity reservation": lambda ec2, r: ec2.cancel_capacity_reservation(
        CapacityReservationId=r.id
    ),
    "elastic IP": _release,
    "network interface": lambda ec2, r: ec2.delete_network_interface(NetworkInterfaceId=r.id),
    "volume": lambda ec2, r: ec2.delete_volume(VolumeId=r.id),
    "launch template": lambda ec2, r: ec2.delete_launch_template(LaunchTemplateId=r.id),
    "placement group": lambda ec2, r: ec2.delete_placement_group(GroupName=r.id),
    "key pair": lambda ec2, r: ec2.delete_key_pair(KeyName=r.id),
    GROUP: lambda ec2, r: ec2.delete_security_group(GroupId=r.id),
    "subnet": lambda ec2, r: ec2.delete_subnet(SubnetId=r.id),
    "route table": _delete_route_table,
    "internet gateway": _delete_internet_gateway,
    "VPC": lambda ec2, r: ec2.delete_vpc(VpcId=r.id),
}
