#!/usr/bin/python3
"""A stand-in for nvidia-smi: `-L`, `--query-gpu=… --format=csv,noheader[,nounits]`, `--version`.

The forms are those of driver 5xx, from memory.
"""

import json
import platform
import sys
import uuid
from pathlib import Path

LAB = Path("/etc/gpuctl-lab")
UNITS = {"memory.total": "MiB", "memory.used": "MiB", "utilization.gpu": "%"}


def machine() -> dict[str, object]:
    """What the machine shows of its type."""
    faults = LAB / "faults.json"
    shown: dict[str, object] = json.loads((LAB / "instance-type.json").read_text())
    return shown | (json.loads(faults.read_text()) if faults.exists() else {})


def gpu(index: int, shown: dict[str, object]) -> dict[str, str]:
    """One GPU's fields, as --query-gpu names them."""
    name = f"{platform.node()} {index}"
    bus = f"00000000:{0x53 + index * 0x11:02X}:00.0"
    return {
        "index": str(index),
        "name": f"NVIDIA {shown['gpu']}",
        "gpu_name": f"NVIDIA {shown['gpu']}",
        "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, name)}",
        "driver_version": str(shown["driver"]),
        "memory.total": str(shown["gpu_memory_mib"]),
        "memory.used": "0",
        "utilization.gpu": "0",
        "gpu_bus_id": bus,
        "pci.bus_id": bus,
        "persistence_mode": "Enabled",
        "ecc.errors.uncorrected.volatile.total": "0",
    }


def query(asked: str, layout: str, gpus: list[dict[str, str]]) -> int:
    """The table of --query-gpu."""
    fields, words = asked.split(","), layout.split(",")
    for field in fields:
        if field not in gpu(0, {"gpu": "", "driver": "", "gpu_memory_mib": ""}):
            sys.stdout.write(f'Field "{field}" is not a valid field to query.\n\n')
            return 2
    units = {} if "nounits" in words else UNITS
    if "noheader" not in words:
        heads = (f"{field} [{units[field]}]" if field in units else field for field in fields)
        sys.stdout.write(", ".join(heads) + "\n")
    for one in gpus:
        values = (f"{one[field]} {units.get(field, '')}".rstrip() for field in fields)
        sys.stdout.write(", ".join(values) + "\n")
    return 0


def main() -> int:
    """The tool's exit code; its output is written."""
    shown = machine()
    count = shown["gpus"]
    if not isinstance(count, int) or count == 0:
        sys.stdout.write(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make"
            " sure that the latest NVIDIA driver is installed and running.\n\n"
        )
        return 9
    gpus = [gpu(index, shown) for index in range(count)]
    options = dict(word.partition("=")[::2] for word in sys.argv[1:])
    if "--query-gpu" in options:
        return query(options["--query-gpu"], options.get("--format", "csv"), gpus)
    if "--version" in options:
        sys.stdout.write(f"NVIDIA-SMI version  : {shown['driver']}\n")
        sys.stdout.write(f"DRIVER version      : {shown['driver']}\n")
        return 0
    for one in gpus:
        sys.stdout.write(f"GPU {one['index']}: {one['name']} (UUID: {one['uuid']})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
