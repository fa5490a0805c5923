"""The AMIs that the lab's regions offer, and the image flavours that their machines boot.

Parameter names: DLAMI, Canonical and Debian documentation, used in public repositories
(2026-11-20). Owners are AWS's real account ids, so that owner filters hold here too.
"""

import hashlib
from dataclasses import dataclass

from lab.images.image import Flavour


@dataclass(frozen=True)
class ImageFamily:
    """An image that the lab offers in every region. `size_gib` is that of its root snapshot.

    `parameter` is the SSM public parameter that names it, empty for an image without one.
    """

    name: str
    parameter: str
    owner: str
    root_device: str
    size_gib: int
    flavour: Flavour

    def ami_id(self, region: str) -> str:
        """Return the AMI's id in the region: always the same one, different in each region."""
        return f"ami-0{hashlib.sha256(f'{self.name} {region}'.encode()).hexdigest()[:16]}"


_DLAMI = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-{}/latest/ami-id"

FAMILIES = (
    ImageFamily(
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261009",
        _DLAMI.format("24.04"), "898082745236", "/dev/sda1", 75, "dlami",
    ),
    ImageFamily(
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20261009",
        _DLAMI.format("22.04"), "898082745236", "/dev/sda1", 75, "dlami",
    ),
    ImageFamily(
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Amazon Linux 2023) 20261009",
        "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest"
        "/ami-id",
        "898082745236", "/dev/xvda", 75, "dlami",
    ),
    ImageFamily(
        "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20261015",
        "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
        "099720109477", "/dev/sda1", 8, "stock",
    ),
    ImageFamily(
        "debian-12-amd64-20261012-2260",
        "/aws/service/debian/release/12/latest/amd64",
        "136693071363", "/dev/xvda", 8, "stock",
    ),
    # An image that the account owns, as people make them from a DLAMI: it has no public parameter.
    ImageFamily("gpuctl lab frameworks", "", "123456789012", "/dev/sda1", 30, "frameworks"),
)  # fmt: skip


def flavour(ami: str, region: str) -> Flavour | None:
    """Return the flavour that machines of the AMI boot; None if the region has no such AMI."""
    return next((family.flavour for family in FAMILIES if family.ami_id(region) == ami), None)
