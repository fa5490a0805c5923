"""Shared file systems: EFS with its mount targets, and FSx for Lustre."""

from typing import Any, ClassVar

from lab.provider.resource import Resource, aws_tags, first, tags_of, wait
from lab.provider.values import Properties


class _Storage(Resource):
    """A resource that takes a while to be available, and to be deleted."""

    noun: ClassVar[str]
    """What it is called while one waits for it."""
    lifecycle: ClassVar[str] = "LifeCycleState"
    """The name of its state in its description."""

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Wait until it is available."""

        def is_available() -> bool:
            state = (self.describe(resource_id) or {}).get(self.lifecycle, "")
            return str(state).lower() == "available"

        wait(is_available, f"{self.noun} {resource_id}")

    def delete(self, resource_id: str, state: Properties) -> None:
        """Delete it, a file system without a final backup, and wait until it is deleted."""
        super().delete(resource_id, state)
        wait(lambda: self.describe(resource_id) is None, f"deletion of {resource_id}")


class FileSystem(_Storage):
    """`aws.efs.FileSystem`."""

    token = "aws:efs/fileSystem:FileSystem"  # noqa: S105 Pulumi's word for a type's name
    title = "EFS (Elastic File) File System"
    noun = "EFS file system"
    removal = ("delete_file_system", "FileSystemId")
    service = "efs"
    replacing = frozenset({"creationToken", "encrypted"})
    updating = frozenset({"throughputMode", "tags"})
    computed = frozenset({"arn", "dnsName", "ownerId"})

    def create(self, inputs: Properties) -> str:
        """Create the file system; return its id."""
        made = self.aws.create_file_system(
            CreationToken=inputs["creationToken"],
            Encrypted=inputs.get("encrypted", False),
            ThroughputMode=inputs.get("throughputMode", "bursting"),
            Tags=aws_tags(inputs.get("tags") or {}),
        )
        return str(made["FileSystemId"])

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return what EFS says of the file system."""
        region = self.aws.meta.region_name
        return {
            "arn": actual["FileSystemArn"],
            "creationToken": actual["CreationToken"],
            "dnsName": f"{actual['FileSystemId']}.efs.{region}.amazonaws.com",
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

    def describe(self, resource_id: str) -> Any | None:
        """Return EFS's description of the file system."""
        describe = self.aws.describe_file_systems
        return first(lambda: describe(FileSystemId=resource_id)["FileSystems"])


class MountTarget(_Storage):
    """`aws.efs.MountTarget`: a file system's interface in a subnet. It has no tags on AWS."""

    token = "aws:efs/mountTarget:MountTarget"  # noqa: S105
    title = "EFS (Elastic File) Mount Target"
    noun = "EFS mount target"
    removal = ("delete_mount_target", "MountTargetId")
    service = "efs"
    required = frozenset({"fileSystemId", "subnetId"})
    replacing = frozenset({"fileSystemId", "subnetId"})
    updating = frozenset({"securityGroups"})
    computed = frozenset({"ipAddress", "networkInterfaceId", "mountTargetDnsName"})

    def create(self, inputs: Properties) -> str:
        """Create the mount target; return its id."""
        made = self.aws.create_mount_target(
            FileSystemId=inputs["fileSystemId"],
            SubnetId=inputs["subnetId"],
            SecurityGroups=inputs.get("securityGroups") or [],
        )
        return str(made["MountTargetId"])

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return its subnet, addresses and security groups."""
        describe_groups = self.aws.describe_mount_target_security_groups
        groups = describe_groups(MountTargetId=actual["MountTargetId"])
        return {
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

    def describe(self, resource_id: str) -> Any | None:
        """Return EFS's description of the mount target."""
        describe = self.aws.describe_mount_targets
        return first(lambda: describe(MountTargetId=resource_id)["MountTargets"])


class LustreFileSystem(_Storage):
    """`aws.fsx.LustreFileSystem`. The lab can change only its tags in place.

    A change of its size or speed would take AWS hours, so the program asks for a replacement.
    """

    token = "aws:fsx/lustreFileSystem:LustreFileSystem"  # noqa: S105
    title = "FSx for Lustre File System"
    noun, lifecycle = "FSx file system", "Lifecycle"
    lookup = ("describe_file_systems", "FileSystemIds", "FileSystems")
    removal = ("delete_file_system", "FileSystemId")
    service = "fsx"
    required = frozenset({"subnetIds"})
    replacing = (
        frozenset({"deploymentType", "fileSystemTypeVersion", "securityGroupIds"}) | required
    )
    updating = frozenset({"perUnitStorageThroughput", "storageCapacity", "tags"})
    computed = frozenset({"arn", "dnsName", "mountName", "ownerId", "networkInterfaceIds"})

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

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return what FSx says of the file system, which contains no security groups."""
        lustre = actual["LustreConfiguration"]
        return {
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
