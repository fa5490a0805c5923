"""The properties of a node that a run needs: RDMA devices, interface, launchers, frameworks.

One command on the node prints them: the instance type does not determine which devices work, nor
the image which launchers exist.
"""

import re

from pydantic import ValidationError

from config.cluster.job_software import INSTALLED, JOB_SOFTWARE
from config.errors import NodeError
from config.foreign import first_mistake
from nodes.inventory import Node

_SCRIPT = r"""
exec 2> /dev/null
say() { echo "gpuctl: $*"; }

say interface "$(ip -o -4 addr show to ADDRESS | awk '{ print $2; exit }')"

# EFA's user space lists its devices, or else the kernel: a container may lack the former.
fi_info=$(command -v fi_info || echo /opt/amazon/efa/bin/fi_info)
listed=$("$fi_info" -p efa -t FI_EP_RDM | sed -n 's/^ *domain: *//p' | sort -u | wc -l)
seen=0
for device in /sys/class/infiniband/*; do
  [ -e "$device" ] || continue
  case $(basename "$(readlink -f "$device/device/driver")") in
    efa) seen=$((seen + 1)) ;;
    *) say hca "$(basename "$device")" "$(cat "$device"/ports/1/link_layer)" ;;
  esac
done
say efa $((listed > seen ? listed : seen))

for launcher in mpirun mpiexec.hydra mpirun.mpich /opt/amazon/openmpi*/bin/mpirun \
  /opt/*/bin/mpirun /opt/intel/oneapi/mpi/latest/bin/mpirun; do
  if path=$(command -v "$launcher"); then
    # Intel's mpirun is a script that calls its neighbour.
    version=$(PATH=$(dirname "$path"):$PATH "$path" --version < /dev/null)
    say launcher "$(tr -s '\n ' ' ' <<< "$version" | cut -c -400)"
  fi
done
# A user's podman makes folders even to say its version.
own=$(mktemp -d)
for runtime in podman docker; do
  if path=$(command -v "$runtime"); then
    version=$(HOME=$own TMPDIR=$own XDG_RUNTIME_DIR=$own "$path" --version < /dev/null | head -n 1)
    say software "$runtime" "$version"
  fi
done
rm -rf "$own"
say software driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)"
nccl=$(ldconfig -p | awk '/libnccl\.so\.2 / { print $NF; exit }')
[ -z "$nccl" ] || say software nccl "$(basename "$(readlink -f "$nccl")")"
for program in PROGRAMS; do
  command -v "$program" > /dev/null && say program "$program"
done
python3 - MODULES << 'END'
import importlib.metadata, importlib.util, sys
for name in sys.argv[1:]:
    if importlib.util.find_spec(name):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = ""
        print("gpuctl: module", name, version)
END
exit 0
"""

_PROGRAMS = {name: key for key, kind in JOB_SOFTWARE.items() for name in kind.programs}
_MODULES = tuple(key for key, kind in JOB_SOFTWARE.items() if kind.is_module)

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)+")
_LAUNCHERS = (
    ("openmpi", re.compile(r"\(Open MPI\) ([0-9.]+)")),
    ("intel", re.compile(r"Intel\(R\) MPI Library.*?Version ([0-9.]+)")),
    ("mpich", re.compile(r"HYDRA build details:.*?Version: *([0-9.]+)")),
)
"""The answers of launchers to `--version`. Tried 2026-11-21: Open MPI 4.1.4 and 5.0.11, Intel MPI
2021.19, MPICH 5.0.2."""


def script(node: Node) -> str:
    """Return the script for a login shell, which prints each property after `gpuctl: `."""
    text = _SCRIPT.replace("ADDRESS", node.private_ip).replace("PROGRAMS", " ".join(_PROGRAMS))
    return text.replace("MODULES", " ".join(_MODULES))


def read(node: Node, answer: str) -> Node:
    """Return the node with the properties in the script's output; skip lines of login profiles.

    The properties are `efa`, `hcas`, `interface` and `software`. Of several launchers of one MPI
    implementation the first counts; PATH comes first. Raises NodeError for a value that no node
    has: a job may be root there.
    """
    efa, interface = "0", ""
    hcas: list[str] = []
    software: dict[str, str] = {}
    for line in answer.splitlines():
        mark, _, rest = line.partition("gpuctl: ")
        kind, _, value = rest.partition(" ")
        if mark or not value:
            continue
        if kind == "efa":
            efa = value
        elif kind == "interface":
            interface = value.strip()
        elif kind == "hca":
            hcas.append(":".join(value.split()[:2]))
        else:
            _add_software(software, kind, value)
    hardware = {"efa": efa, "hcas": tuple(hcas), "interface": interface, "software": software}
    try:
        return Node.model_validate({**node.model_dump(), **hardware})
    except ValidationError as error:
        raise NodeError(
            f"{node.label} describes itself wrongly: {first_mistake(error)}",
            "inspect the node with `gpuctl ssh`",
        ) from None


def _add_software(software: dict[str, str], kind: str, value: str) -> None:
    name, _, version = value.partition(" ")
    if kind == "launcher":
        _add_launcher(software, value)
    elif kind == "module":
        software[name] = version.strip() or INSTALLED
    elif kind == "program" and name in _PROGRAMS:
        software.setdefault(_PROGRAMS[name], INSTALLED)
    elif kind == "software" and (number := _VERSION.search(version)):
        software[name] = number[0]


def _add_launcher(software: dict[str, str], version: str) -> None:
    for name, form in _LAUNCHERS:
        if match := form.search(version):
            software.setdefault(name, match[1].rstrip("."))
            return
