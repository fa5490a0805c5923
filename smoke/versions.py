"""The versions of everything that takes part in a step: this machine's, and those of the nodes."""

import platform
from importlib.metadata import version

from infra.stack.installation import VERSION
from provision.state.store import ClusterStore
from smoke.workplace import StepFailed, Workplace

_NODE = """\
echo "kernel: $(uname -r)"
sed -n 's/^PRETTY_NAME="\\(.*\\)"/system: \\1/p' /etc/os-release
cloud-init --version 2>&1 | sed 's/^/cloud-init: /'
nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u | sed 's/^/NVIDIA driver: /'
sed -n 's/^# EFA installer version: /EFA installer: /p' /opt/amazon/efa_installed_packages
mpirun --version | sed -n 's/^mpirun (Open MPI) /Open MPI: /p'
ls /usr/local/cuda*/lib/libnccl.so.2.* /opt/nccl/build/lib/libnccl.so.2.* |
  sed 's/.*so\\./NCCL: /' | sort -u
true
"""


def versions() -> dict[str, str]:
    """Return the versions of this machine's software."""
    packages = {
        name: version(name)
        for name in ("gpuctl-cluster", "boto3", "botocore", "pulumi", "pulumi_aws")
    }
    return {
        **packages,
        "Pulumi's engine": VERSION,
        "Python": platform.python_version(),
        "this machine": platform.platform(),
    }


def node_versions(site: Workplace, cluster: str) -> dict[str, str]:
    """Return the image and the software of the cluster's nodes; several texts if nodes differ.

    Nothing but the image is known if the nodes do not answer; then a note says why.
    """
    record = ClusterStore(site.target).record(cluster)
    image = record.resolved.image if record else None
    versions = {"image": f"{image.name} ({image.id})"} if image else {}
    try:
        output = site.read("exec", cluster, "--", f"{{ {_NODE}}} 2> /dev/null", quiet=True)
    except StepFailed as error:
        site.note(f"the versions of the nodes are not known: {error}")
        return versions
    for line in output.splitlines():
        name, separator, text = line.strip().partition(": ")
        if separator and text not in versions.get(name, "").split(", "):
            versions[name] = f"{versions[name]}, {text}" if name in versions else text
    return versions
