"""The kernels for which AWS has a Lustre client: the packages of its repository for Ubuntu.

The repository is a public bucket: FSx for Lustre User Guide, "Installing the Lustre client"
(2026-11-20). Its packages are named after the kernels, `lustre-client-modules-6.8.0-1063-aws`.
"""

import gzip
import re
import urllib.request
import zlib
from collections.abc import Mapping
from http.client import HTTPException
from io import BytesIO

from config.errors import CloudError
from config.target import Target

BUCKET = "fsx-lustre-client-repo"
CODENAMES: Mapping[str, str] = {
    "dlami-ubuntu-24.04": "noble",
    "dlami-ubuntu-22.04": "jammy",
    "stock-ubuntu-24.04": "noble",
}
"""Ubuntu's name of each image's release. Amazon Linux 2023 has the client for its own kernels."""

_MOST_MIB = 32
"""The most of the list that is read, as it is sent and unpacked."""


def client_kernels(target: Target, image: str) -> tuple[str, ...]:
    """Return the kernels with a Lustre client for the image's release, the oldest first.

    Raises CloudError if the list cannot be read, or has more than `_MOST_MIB`.
    """
    base = (
        f"{target.endpoint}/{BUCKET}" if target.endpoint else f"https://{BUCKET}.s3.amazonaws.com"
    )
    most = _MOST_MIB * 1024 * 1024
    url = f"{base}/ubuntu/dists/{CODENAMES[image]}/main/binary-amd64/Packages.gz"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  (AWS, or the lab)
            packed = answer.read(most)
        text = gzip.GzipFile(fileobj=BytesIO(packed)).read(most + 1)
    except (OSError, EOFError, HTTPException, zlib.error) as error:
        raise CloudError(f"{url} cannot be read: {error}", "repeat the command") from error
    if len(text) > most:
        raise CloudError(f"{url} has more than {_MOST_MIB} MiB, unpacked", "")
    listed = text.decode(errors="replace")
    kernels = re.findall(r"^Package: lustre-client-modules-(\d\S*)$", listed, re.MULTILINE)
    return tuple(sorted(set(kernels), key=_numbers))


def _numbers(kernel: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", kernel)))
