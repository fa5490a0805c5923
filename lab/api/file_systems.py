"""Shared file systems as the lab has them: moto's, with folders below and what moto leaves out.

On AWS both have network interfaces in a subnet of the account, which hold the subnet and their
security groups until they are gone. moto's FSx has none, and knows no state of a file system.
"""

import time
from types import SimpleNamespace
from typing import Any, ClassVar

from moto.ec2.models import ec2_backends
from moto.efs import urls as efs_urls
from moto.efs.exceptions import FileSystemNotFound
from moto.efs.models import EFSBackend, MountTarget
from moto.fsx import urls as fsx_urls
from moto.fsx.exceptions import FileSystemNotFound as FsxFileSystemNotFound
from moto.fsx.models import FileSystem, FSxBackend
from moto.moto_api._internal import mock_random


class EfsBackend(EFSBackend):  # type: ignore[misc]  # moto is untyped here
    """EFS: a file system can be mounted as long as it has a mount target."""

    _url_module = efs_urls  # moto derives it from the class's module, which is ours

    def create_mount_target(
        self,
        file_system_id: str,
        subnet_id: str,
        ip_address: str | None = None,
        security_groups: list[str] | None = None,
    ) -> MountTarget:
        """The mount target is there, with an interface in the subnet."""
        ec2 = self.ec2_backend
        if file_system_id not in self.file_systems_by_id:
            raise FileSystemNotFound(file_system_id)
        with ec2.lab.lock:
            subnet = ec2.get_subnet(subnet_id)
            files = self.file_systems_by_id[file_system_id]
            target = MountTarget(self.account_id, files, subnet, ip_address, security_groups)
            subnet.del_subnet_ip(target.ip_address)  # it is the interface that takes it
            text = f"EFS mount target for {file_system_id} ({target.mount_target_id})"
            interface = ec2.create_network_interface(
                subnet, [target.ip_address], group_ids=security_groups, description=text
            )
            target.set_network_interface(interface)
            self.mount_targets_by_id[target.mount_target_id] = target
            ec2.lab.machines.add_file_system(file_system_id)
        return target

    def delete_file_system(self, file_system_id: str) -> None:
        """The file system is gone, and what was in it."""
        super().delete_file_system(file_system_id)
        self.ec2_backend.lab.machines.remove_file_system(file_system_id)

    def delete_mount_target(self, mount_target_id: str) -> None:
        """The mount target is gone, and its interface."""
        with self.ec2_backend.lab.lock:
            super().delete_mount_target(mount_target_id)


class LustreFileSystem(FileSystem):  # type: ignore[misc]  # moto is untyped here
    """A file system as FSx shows it."""

    def to_dict(self) -> dict[str, Any]:
        """FSx's FileSystem."""
        lustre = {**(self.lustre_configuration or {}), "MountName": self.mount_name}
        return {
            **super().to_dict(),
            "LustreConfiguration": lustre,
            "Lifecycle": "AVAILABLE",
            "CreationTime": self.created,
            "NetworkInterfaceIds": [self.interface.id],
        }


class FsxBackend(FSxBackend):  # type: ignore[misc]  # moto is untyped here
    """FSx for Lustre: available at once."""

    _url_module: ClassVar[SimpleNamespace] = SimpleNamespace(
        url_bases=fsx_urls.url_bases, url_paths=fsx_urls.url_paths
    )

    @property
    def ec2_backend(self) -> Any:
        """The region's EC2."""
        return ec2_backends[self.account_id][self.region_name]

    def create_file_system(self, **request: Any) -> FileSystem:
        """The file system is there, with an interface in its subnet."""
        ec2 = self.ec2_backend
        with ec2.lab.lock:
            subnet = ec2.get_subnet(request["subnet_ids"][0])
            made = super().create_file_system(**request)
            made.__class__ = LustreFileSystem
            made.mount_name = mock_random.get_random_hex(8)
            made.created = time.time()
            made.interface = ec2.create_network_interface(
                subnet,
                group_ids=request["security_group_ids"],
                description=f"Interface of {made.file_system_id}",
            )
            ec2.lab.machines.add_file_system(made.file_system_id)
        return made

    def describe_file_systems(self, **request: Any) -> Any:
        """As moto, but one that does not exist is an error."""
        for wanted in request["file_system_ids"] or ():
            if wanted not in self.file_systems:
                raise FsxFileSystemNotFound(wanted)
        return super().describe_file_systems(**request)

    def delete_file_system(self, file_system_id: str, *rest: Any, **more: Any) -> Any:
        """The file system is gone, its interface too, and what was in it."""
        ec2 = self.ec2_backend
        with ec2.lab.lock:
            found = self.file_systems.get(file_system_id)
            answer = super().delete_file_system(file_system_id, *rest, **more)
            if found is not None:
                ec2.delete_network_interface(found.interface.id)
            ec2.lab.machines.remove_file_system(file_system_id)
        return answer
