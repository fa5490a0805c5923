"""Shared file systems of the lab: moto's EFS and FSx, backed by folders of the host.

On AWS both have network interfaces in a subnet of the account. Until the interfaces are deleted,
the subnet and their security groups cannot be deleted. moto's FSx lacks these interfaces and the
state of a file system; the lab adds both.
"""

import json
import time
from types import SimpleNamespace
from typing import Any, ClassVar

from moto.ec2.models import ec2_backends
from moto.efs import urls as efs_urls
from moto.efs.exceptions import FileSystemNotFound
from moto.efs.models import EFSBackend, MountTarget
from moto.efs.responses import EFSResponse
from moto.fsx import urls as fsx_urls
from moto.fsx.exceptions import FileSystemNotFound as FsxFileSystemNotFound
from moto.fsx.models import FileSystem, FSxBackend
from moto.moto_api._internal import mock_random

_LUSTRE = "2.10"
"""FSx's default of FileSystemTypeVersion (CreateFileSystem, botocore's model, 2026-11-26)."""


class EfsResponse(EFSResponse):  # type: ignore[misc]  # moto is untyped here
    """EFS's responses, with one that moto lacks."""

    def update_file_system(self) -> tuple[str, dict[str, Any]]:
        """Answer UpdateFileSystem: it changes the throughput mode."""
        backend = self.efs_backend
        file_system = backend.file_systems_by_id.get(self._get_param("FileSystemId"))
        if file_system is None:
            raise FileSystemNotFound(self._get_param("FileSystemId"))
        file_system.throughput_mode = self._get_param("ThroughputMode")
        head = {"status": 202, "Content-Type": "application/json"}
        return json.dumps(file_system.info_json()), head


class EfsBackend(EFSBackend):  # type: ignore[misc]  # moto is untyped here
    """EFS whose mount targets have interfaces, and whose file systems have folders."""

    # moto derives it from the class's module, which is ours.
    _url_module: ClassVar[SimpleNamespace] = SimpleNamespace(
        url_bases=efs_urls.url_bases,
        url_paths=dict.fromkeys(efs_urls.url_paths, EfsResponse.dispatch),
    )

    def create_mount_target(
        self,
        file_system_id: str,
        subnet_id: str,
        ip_address: str | None = None,
        security_groups: list[str] | None = None,
    ) -> MountTarget:
        """Create the mount target and its interface in the subnet."""
        ec2 = self.ec2_backend
        if file_system_id not in self.file_systems_by_id:
            raise FileSystemNotFound(file_system_id)
        with ec2.lab.lock:
            subnet = ec2.get_subnet(subnet_id)
            files = self.file_systems_by_id[file_system_id]
            target = MountTarget(self.account_id, files, subnet, ip_address, security_groups)
            subnet.del_subnet_ip(target.ip_address)  # the interface below takes the address
            text = f"EFS mount target for {file_system_id} ({target.mount_target_id})"
            interface = ec2.create_network_interface(
                subnet, [target.ip_address], group_ids=security_groups, description=text
            )
            target.set_network_interface(interface)
            self.mount_targets_by_id[target.mount_target_id] = target
            ec2.lab.machines.add_file_system(file_system_id)
        return target

    def delete_file_system(self, file_system_id: str) -> None:
        """Delete the file system and its files."""
        super().delete_file_system(file_system_id)
        self.ec2_backend.lab.machines.remove_file_system(file_system_id)

    def delete_mount_target(self, mount_target_id: str) -> None:
        """Delete the mount target and its interface."""
        with self.ec2_backend.lab.lock:
            super().delete_mount_target(mount_target_id)


class LustreFileSystem(FileSystem):  # type: ignore[misc]  # moto is untyped here
    """An FSx for Lustre file system."""

    def to_dict(self) -> dict[str, Any]:
        """Return the file system as FSx's FileSystem, without security groups, as AWS does.

        Defaults: CreateFileSystem and CreateFileSystemLustreConfiguration of FSx's reference
        (botocore's model, 2026-11-26).
        """
        description = {
            **super().to_dict(),
            "OwnerId": self.account_id,
            "FileSystemTypeVersion": self.version,
            "StorageType": self.storage_type or "SSD",
            "NetworkType": "IPV4",
            "KmsKeyId": self.kms_key_id or self.default_key,
            "LustreConfiguration": {
                "DataCompressionType": "NONE",
                "CopyTagsToBackups": False,
                "AutomaticBackupRetentionDays": 0,
                "WeeklyMaintenanceStartTime": "1:05:00",
                "LogConfiguration": {"Level": "DISABLED"},
                **(self.lustre_configuration or {}),
                "MountName": self.mount_name,
            },
            "Lifecycle": "AVAILABLE" if time.time() >= self.ready else "CREATING",
            "CreationTime": self.created,
            "VpcId": self.interface.subnet.vpc_id,
            "NetworkInterfaceIds": [self.interface.id],
        }
        return {name: value for name, value in description.items() if name != "SecurityGroupIds"}


class FsxBackend(FSxBackend):  # type: ignore[misc]  # moto is untyped here
    """FSx for Lustre whose file systems are available at once, or when the fault says."""

    _url_module: ClassVar[SimpleNamespace] = SimpleNamespace(
        url_bases=fsx_urls.url_bases, url_paths=fsx_urls.url_paths
    )

    @property
    def ec2_backend(self) -> Any:
        """EC2 of the same region."""
        return ec2_backends[self.account_id][self.region_name]

    def create_file_system(self, **request: Any) -> FileSystem:
        """Create the file system and its interface in the subnet."""
        ec2 = self.ec2_backend
        with ec2.lab.lock:
            subnet = ec2.get_subnet(request["subnet_ids"][0])
            made = super().create_file_system(**request)
            made.__class__ = LustreFileSystem
            made.mount_name = mock_random.get_random_hex(8)
            made.created = time.time()
            made.account_id = self.account_id
            made.version = request["file_system_type_version"] or _LUSTRE
            made.default_key = f"arn:aws:kms:{self.region_name}:{self.account_id}:key/aws-fsx"
            made.ready = made.created + (ec2.lab.faults.number("fsx-creating") or 0)
            made.interface = ec2.create_network_interface(
                subnet,
                group_ids=request["security_group_ids"],
                description=f"Interface of {made.file_system_id}",
            )
            ec2.lab.machines.add_file_system(made.file_system_id)
        return made

    def describe_file_systems(self, **request: Any) -> Any:
        """Return moto's answer; FileSystemNotFound for an id that does not exist."""
        for file_system_id in request["file_system_ids"] or ():
            if file_system_id not in self.file_systems:
                raise FsxFileSystemNotFound(file_system_id)
        return super().describe_file_systems(**request)

    def delete_file_system(self, file_system_id: str, *rest: Any, **more: Any) -> Any:
        """Delete the file system, its interface and its files."""
        ec2 = self.ec2_backend
        with ec2.lab.lock:
            file_system = self.file_systems.get(file_system_id)
            answer = super().delete_file_system(file_system_id, *rest, **more)
            if file_system is not None:
                ec2.delete_network_interface(file_system.interface.id)
            ec2.lab.machines.remove_file_system(file_system_id)
        return answer
