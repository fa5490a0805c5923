"""The AMI of today for an image's name in a cluster file."""

from typing import TYPE_CHECKING

from config.cluster.resolved import Image
from config.errors import InputError
from provision.aws.clients import aws_errors

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient

PARAMETERS = {
    "dlami-ubuntu-24.04": "/aws/service/deeplearning/ami/x86_64/"
    "base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
    "dlami-ubuntu-22.04": "/aws/service/deeplearning/ami/x86_64/"
    "base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
    "dlami-al2023": "/aws/service/deeplearning/ami/x86_64/"
    "base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id",
    "stock-ubuntu-24.04": "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/"
    "hvm/ebs-gp3/ami-id",
    "stock-debian-12": "/aws/service/debian/release/12/latest/amd64",
}
"""Public SSM parameters of the newest AMI. Sources (2026-11-20): AWS, "Deep Learning AMI release
notes" (Base OSS, Ubuntu and Amazon Linux); https://documentation.ubuntu.com/aws (Find Ubuntu images
with SSM);
https://wiki.debian.org/Cloud/AmazonEC2Image."""

OPEN_DRIVER = "OSS Nvidia Driver"
"""A part of the names of Deep Learning AMIs that have NVIDIA's open driver (their release notes,
2026-11-26)."""

BASTION_IMAGE = "stock-debian-12"
"""The bastion's image: small and quick to boot."""


def image_id(ssm: "SSMClient", name: str) -> str:
    """Return the id of the newest AMI of the image `name` in this region; an `ami-…` is returned.

    Raises InputError if the image is not published in the region.
    """
    if name.startswith("ami-"):
        return name
    with aws_errors():
        try:
            answer = ssm.get_parameter(Name=PARAMETERS[name])
        except ssm.exceptions.ParameterNotFound:
            raise InputError(
                f"image {name} is not published in {ssm.meta.region_name}",
                "choose another region, or name one of your AMIs (ami-…)",
            ) from None
    return answer["Parameter"]["Value"]


def image(ec2: "EC2Client", ami: str) -> tuple[Image, int]:
    """Return the AMI, and the size of its root snapshot in GiB (0 if AWS does not report it).

    Raises InputError if the region has no such AMI.
    """
    with aws_errors():
        images = ec2.describe_images(
            Filters=[{"Name": "image-id", "Values": [ami]}], IncludeDeprecated=True
        )["Images"]
    if not images:
        raise InputError(
            f"image {ami} does not exist in {ec2.meta.region_name}, or this account may not use it",
            "name another one, or a published image such as dlami-ubuntu-24.04",
        )
    entry = images[0]
    root = entry.get("RootDeviceName", "/dev/sda1")
    disks = {disk.get("DeviceName"): disk for disk in entry.get("BlockDeviceMappings", ())}
    size = disks.get(root, {}).get("Ebs", {}).get("VolumeSize", 0)
    name = entry.get("Name", ami)
    return (
        Image(
            id=ami,
            name=name,
            root_device=root,
            architecture=entry.get("Architecture", "x86_64"),
            boot_mode=entry.get("BootMode", ""),
        ),
        size,
    )
