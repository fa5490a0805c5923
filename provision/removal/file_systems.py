"""The removal of shared file systems, including their data."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from config.errors import CloudError, GpuctlError
from config.polling import Timeouts, poll, retry
from config.target import Target
from provision.aws.clients import call_unless_gone, client
from provision.aws.resources import KINDS, Resource

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
