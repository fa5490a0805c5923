"""AWS's repository of Lustre clients for Ubuntu: a public bucket, which needs no signature.

It has clients for the kernels of the lab's images, or for those that a fault names.
"""

import gzip
from typing import Any

from lab.api.faults import Faults

_PATH = "/fsx-lustre-client-repo/ubuntu/dists/"
_KERNELS = {
    "noble": ("6.8.0-1024-aws", "6.14.0-1017-aws", "6.17.0-1017-aws", "7.0.0-1014-aws"),
    "jammy": ("5.15.0-1050-aws", "6.5.0-1022-aws", "6.8.0-1063-aws"),
}
"""The kernels of releases of the Deep Learning AMI, by their notes (2026-11-26). AWS may not have a
client for each: an inventory that somebody published in 2026 has 6.8 up to 1057, 6.14 and 6.17 for
noble, no 7.0, and 6.8.0-1063 for jammy."""


def packages(environ: dict[str, Any], faults: Faults) -> bytes | None:
    """Return the list of packages that the request asks for; None if it asks for something else."""
    path = str(environ.get("PATH_INFO", ""))
    release = path.removeprefix(_PATH).partition("/")[0]
    if path != f"{_PATH}{release}/main/binary-amd64/Packages.gz" or release not in _KERNELS:
        return None
    kernels = faults.arguments("lustre-client") or _KERNELS[release]
    names = (f"lustre-client-modules-{kernel}" for kernel in (*kernels, "aws"))
    return gzip.compress(
        "".join(f"Package: {name}\nVersion: 2.15.6\n\n" for name in names).encode()
    )
