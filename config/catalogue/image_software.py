"""The software that images have by AWS's release notes, and the versions that were seen together.

Sources, read 2026-11-26:
- images: DLAMI release notes of the Base OSS images for ARM64 (docs.amazonaws.cn/dlami, pages
  aws-deep-learning-ami-gpubaseossarm64-ul2404-2026-10-09, -ul2204-2026-09-16, -al2023-2026-09-18).
  The notes for x86_64 could not be read; gpuctl assumes that a release has the same versions for
  both. Those of September for Ubuntu 24.04 have: kernel, driver and CUDA of the x86_64 image
  20260915, as a public project quotes its notes, are those of the ARM64 image 20260918
  (2026-11-27).
  The notes do not name NCCL and Open MPI, which are those of the image's CUDA and of EFA's
  installer.
- plugins of EFA's installers: "Elastic Fabric Adapter release notes", EC2 User Guide; 1.47.0 and
  1.49.0 by the DLAMI release notes, which name both.
- NCCL: the notes of the plugin's releases, https://github.com/aws/aws-ofi-nccl/releases. Those of
  1.18.0 and 1.22.0 could not be read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ImageSoftware:
    """The versions of an image's software. `release` is the date in the AMI's name."""

    release: str
    kernel: str
    driver: str
    cuda: str
    efa: str


IMAGES: Mapping[str, ImageSoftware] = {
    "dlami-ubuntu-24.04": ImageSoftware(
        "20261009", "7.0.0-1014-aws", "595.91.07", "13.2", "1.50.0"
    ),
    "dlami-ubuntu-22.04": ImageSoftware(
        "20260915", "6.8.0-1063-aws", "595.91.07", "13.2", "1.50.0"
    ),
    "dlami-al2023": ImageSoftware("20260917", "6.12.103-127.188", "595.91.07", "13.2", "1.50.0"),
}

PLUGINS: Mapping[str, str] = {
    "1.47.0": "1.18.0",
    "1.49.0": "1.20.0",
    "1.50.0": "1.21.1",
    "1.51.0": "1.22.0",
}
"""NCCL's plugin for EFA (aws-ofi-nccl) in each release of EFA's installer."""

TESTED: Mapping[str, tuple[str, ...]] = {
    "1.20.0": ("2.28.9-1", "2.29.7-1", "2.30.4-1"),
    "1.21.1": ("2.31.2-1",),
}
"""The releases of NCCL with which AWS tested each plugin. Each works with NCCL 2.17.1 and later."""


def release_of(ami_name: str) -> str:
    """Return the date at the end of a Deep Learning AMI's name, empty if it has none."""
    match = re.search(r" (\d{8})$", ami_name)
    return match[1] if match else ""


def kernel_of(image: str, ami_name: str) -> str:
    """Return the kernel of the AMI; empty if the notes of its release are not known."""
    known = IMAGES.get(image)
    return known.kernel if known and known.release == release_of(ami_name) else ""


def unseen(efa: str, nccl: str) -> str:
    """Return why nobody has seen this NCCL with this EFA installer, empty if AWS tested them."""
    plugin = PLUGINS.get(efa)
    if plugin is None:
        return f"gpuctl does not know NCCL's plugin in EFA's installer {efa}"
    tested = TESTED.get(plugin)
    if tested is None:
        return f"the tests of plugin {plugin} (EFA's installer {efa}) are not known"
    if nccl in tested:
        return ""
    return f"AWS tested plugin {plugin} (EFA's installer {efa}) with NCCL {', '.join(tested)}"
