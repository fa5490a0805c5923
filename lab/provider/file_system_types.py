"""Shared file systems: EFS with its mount targets, and FSx for Lustre."""

from typing import Any

from lab.provider.resource import Resource, aws_tags, first, tags_of, wait
from lab.provider.values import Properties


class FileSystem(Resource):
    """`aws.efs.FileSystem`."""

    token = "aws:efs/fileSystem:FileSystem"  # noqa: S105 Pulumi's word for a type's name
    title = "EFS (Elastic File) File System"
    service = "efs"
    replacing = frozenset({"creationToken", "encrypted"})
    updating = frozenset({"throughputMode", "tags"})
    computed = frozenset({"arn", "dnsName", "ownerId"})
    aws: Any

    def create(self, inputs: Properties) -> str:
        """Create the file system; return its id."""
        made = self.aws.create_file_system(
            CreationToken=inputs["creationToken"],
            Encrypted=inputs.get("encrypted", False),
            ThroughputMode=inputs.get("throughputMode", "bursting"),
            Tags=aws_tags(inputs.get("tags") or {}),
        )
        return str(made["FileSystemId"])

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Wait until it is available."""
        wait(lambda: self._state(resource_id) == "available", f"EFS file system {resource_id}")

    def read(self, resource_id: str, state: Properties) -> Properties | None:
        """Return EFS's description of the file system."""
        actual = self._describe(resource_id)
        if actual is None:
            return None
        region = self.aws.meta.region_name
        return {
            **state,
            "arn": actual["FileSystemArn"],
            "creationToken": actual["CreationToken"],
            "dnsName": f"{resource_id}.efs.{region}.amazonaws.com",
            "encrypted": actual["Encrypted"],
            "ownerId": actual["OwnerId"],
            "throughputMode": actual["ThroughputMode"],
            "tags": tags_of(actual),
        }

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Change the throughput mode and the tags."""
        if state.get("throughputMode") != inputs.get("throughputMode"):
            self.aws.update_file_system(
                FileSystemId=resource_id, ThroughputMode=inputs["throughputMode"]
            )
        old, new = state.get("tags") or {}, inputs.get("tags") or {}
        if gone := sorted(set(old) - set(new)):
            self.aws.untag_resource(ResourceId=resource_id, TagKeys=gone)
        if new != old:
            self.aws.tag_resource(ResourceId=resource_id, Tags=aws_tags(new))

    def delete(self, resource_id: str, state: Properties) -> None:
        """Delete the file system, and wait until it is deleted."""
        self.aws.delete_file_system(FileSystemId=resource_id)
        wait(lambda: self._describe(resource_id) is None, f"deletion of {resource_id}")

    def _state(self, resource_id: str) -> Any:
        return (self._describe(resource_id) or {}).get("LifeCycleState")

    def _describe(self, resource_id: str) -> Any | None:
        return first(
            lambda: self.aws.describe_file_systems(FileSystemId=resource_id)["FileSystems"]
        )


class MountTarget(Resource):
    """`aws.efs.MountTarget`: a file system's interface in a subnet. It has no tags on AWS."""

    token = "aws:efs/mountTarget:MountTarget"  # noqa: S105
    title = "EFS (Elastic File) Mount Target"
    service = "efs"
    required = frozenset({"fileSystemId", "subnetId"})
    replacing = frozenset({"fileSystemId", "subnetId"})
    updating = frozenset({"securityGroups"})
    computed = frozenset({"ipAddress", "networkInterfaceId", "mountTargetDnsName"})
    aws: Any

    def create(self, inputs: Properties) -> str:
        """Create the mount target; return its id."""
        made = self.aws.create_mount_target(
            FileSystemId=inputs["fileSystemId"],
            SubnetId=inputs["subnetId"],
            SecurityGroups=inputs.get("securityGroups") or [],
        )
        return str(made["MountTargetId"])

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Wait until it is available."""
        wait(lambda: self._state(resource_id) == "available", f"EFS mount target {resource_id}")

    def read(self, resource_id: str, state: Properties) -> Properties | None:
        """Return its subnet, addresses and security groups."""
        actual = self._describe(resource_id)
        if actual is None:
            return None
        groups = self.aws.describe_mount_target_security_groups(MountTargetId=resource_id)
        return {
            **state,
            "fileSystemId": actual["FileSystemId"],
            "subnetId": actual["SubnetId"],
            "securityGroups": sorted(groups["SecurityGroups"]),
            "ipAddress": actual["IpAddress"],
            "networkInterfaceId": actual["NetworkInterfaceId"],
        }

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Change its security groups."""
        self.aws.modify_mount_target_security_groups(
            MountTargetId=resource_id, SecurityGroups=inputs["securityGroups"]
        )

    def delete(self, resource_id: str, state: Properties) -> None:
        """Delete the mount target, and wait until it is deleted."""
        self.aws.delete_mount_target(MountTargetId=resource_id)
        wait(lambda: self._describe(resource_id) is None, f"deletion of {resource_id}")

    def _state(self, resource_id: str) -> Any:
        return (self._describe(resource_id) or {}).get("LifeCycleState")

    def _describe(self, resource_id: str) -> Any | None:
        return first(
            lambda: self.aws.describe_mount_targets(MountTargetId=resource_id)["MountTargets"]
        )


class LustreFileSystem(Resource):
    """`aws.fsx.LustreFileSystem`. The lab can change only its tags in place.

    A change of its size or speed would take AWS hours, so the program asks for a replacement.
    """

    token = "aws:fsx/lustreFileSystem:LustreFileSystem"  # noqa: S105
    title = "FSx for Lustre File System"
    service = "fsx"
    required = frozenset({"subnetIds"})
    replacing = (
        frozenset({"deploymentType", "fileSystemTypeVersion", "securityGroupIds"}) | required
    )
    updating = frozenset({"perUnitStorageThroughput", "storageCapacity", "tags"})
    computed = frozenset({"arn", "dnsName", "mountName", "ownerId", "networkInterfaceIds"})
    aws: Any

    def create(self, inputs: Properties) -> str:
        """Create the file system; return its id."""
        lustre = {"DeploymentType": inputs.get("deploymentType", "SCRATCH_1")}
        if inputs.get("perUnitStorageThroughput") is not None:
            lustre["PerUnitStorageThroughput"] = int(inputs["perUnitStorageThroughput"])
        made = self.aws.create_file_system(
            FileSystemType="LUSTRE",
            FileSystemTypeVersion=inputs.get("fileSystemTypeVersion", "2.10"),
            StorageCapacity=int(inputs["storageCapacity"]),
            SubnetIds=[inputs["subnetIds"]],
            SecurityGroupIds=inputs.get("securityGroupIds") or [],
            LustreConfiguration=lustre,
            Tags=aws_tags(inputs.get("tags") or {}),
        )
        return str(made["FileSystem"]["FileSystemId"])

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Wait until it is available."""
        wait(lambda: self._state(resource_id) == "AVAILABLE", f"FSx file system {resource_id}")

    def read(self, resource_id: str, state: Properties) -> Properties | None:
        """Return FSx's description of the file system, which contains no security groups."""
        actual = self._describe(resource_id)
        if actual is None:
            return None
        lustre = actual["LustreConfiguration"]
        return {
            **state,
            "arn": actual["ResourceARN"],
            "deploymentType": lustre["DeploymentType"],
            "dnsName": actual["DNSName"],
            # Another version is another file system.
            "fileSystemTypeVersion": actual.get("FileSystemTypeVersion"),
            "mountName": lustre["MountName"],
            "networkInterfaceIds": actual["NetworkInterfaceIds"],
            "ownerId": actual["OwnerId"],
            "perUnitStorageThroughput": lustre.get("PerUnitStorageThroughput"),
            "storageCapacity": actual["StorageCapacity"],
            "subnetIds": actual["SubnetIds"][0],
            "tags": tags_of(actual),
        }

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Change its tags."""
        arn, old, new = state["arn"], state.get("tags") or {}, inputs.get("tags") or {}
        if gone := sorted(set(old) - set(new)):
            self.aws.untag_resource(ResourceARN=arn, TagKeys=gone)
        self.aws.tag_resource(ResourceARN=arn, Tags=aws_tags(new))

    def delete(self, resource_id: str, state: Properties) -> None:
        """Delete the file system without a final backup, and wait until it is deleted."""
        self.aws.delete_file_system(FileSystemId=resource_id)
        wait(lambda: self._describe(resource_id) is None, f"deletion of {resource_id}")

    def _state(self, resource_id: str) -> Any:
        return (self._describe(resource_id) or {}).get("Lifecycle")

    def _describe(self, resource_id: str) -> Any | None:
        return first(
            lambda: self.aws.describe_file_systems(FileSystemIds=[resource_id])["FileSystems"]
        )
