#!/usr/bin/python3 -IS
"""A stand-in for nvidia-smi: `-L`, `--query-gpu=… --format=csv,noheader[,nounits] [--loop=S]`,
`--version`, `--query-remapped-rows=…`, `nvlink --status`, `nvlink --getthroughput d`.

The forms are those of driver 5xx, from memory, from outputs in public issues, and from
nvidia-smi(1) (https://manpages.ubuntu.com/manpages/plucky/man1/nvidia-smi.1.html, 2026-11-23).
The GPUs have no work. It is started often, so it imports little.
"""

import json
import os
import sys
import time
import zlib

LAB = "/etc/gpuctl-lab"
NAMES = {
    "A100": "NVIDIA A100-SXM4-40GB",
    "H100": "NVIDIA H100 80GB HBM3",
    "T4": "Tesla T4",
    "V100": "Tesla V100-SXM2-32GB",
}
"""Names that are not `NVIDIA` and the model."""
LINKS = {"A100": (12, "25"), "H100": (18, "26.562"), "H200": (18, "26.562")}
"""NVLinks of a GPU, and GB/s of each; later ones have 18 of 53.125."""
UNITS = {"memory.total": "MiB", "memory.used": "MiB", "utilization.gpu": "%", "power.draw": "W"}


SLOWDOWNS = tuple(
    f"clocks_event_reasons.{kind}_slowdown"
    for kind in ("hw", "hw_thermal", "hw_power_brake", "sw_thermal")
)


def model(shown: dict[str, object]) -> str:
    """Return a GPU's name."""
    return NAMES.get(str(shown["gpu"]), f"NVIDIA {shown['gpu']}")


def faulty(name: str, index: int, shown: dict[str, object]) -> object:
    """Return what the fault `name` says; GPU 1 has it, or the only one."""
    return shown.get(name) if index == min(1, int(str(shown.get("gpus") or 0)) - 1) else None


def machine() -> dict[str, object]:
    """Return what the machine shows of its type."""
    with open(f"{LAB}/instance-type.json") as file:
        shown: dict[str, object] = json.load(file)
    if os.path.exists(f"{LAB}/faults.json"):
        with open(f"{LAB}/faults.json") as file:
            shown |= json.load(file)
    return shown


def identity(index: int) -> str:
    """Return the UUID of a GPU, always the same for a machine."""
    names = (f"{os.uname().nodename} {index} {part}" for part in range(4))
    digits = "".join(f"{zlib.crc32(name.encode()):08x}" for name in names)
    return "-".join(("GPU", digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def gpu(index: int, shown: dict[str, object]) -> dict[str, str]:
    """Return the fields of a GPU, as --query-gpu names them."""
    bus = f"00000000:{0x53 + index * 0x11:02X}:00.0"
    return {
        "index": str(index),
        "name": model(shown),
        "gpu_name": model(shown),
        "uuid": identity(index),
        "driver_version": str(shown["driver"]),
        "memory.total": str(shown["gpu_memory_mib"]),
        "memory.used": "0",
        "utilization.gpu": "0",
        "power.draw": "68.25",
        "temperature.gpu": "31",
        "gpu_bus_id": bus,
        "pci.bus_id": bus,
        "persistence_mode": "Enabled",
        "ecc.errors.corrected.volatile.total": "0",
        "ecc.errors.uncorrected.volatile.total": str(faulty("ecc", index, shown) or 0),
        **dict.fromkeys(SLOWDOWNS, "Not Active"),
        **dict.fromkeys(SLOWDOWNS[:2] if faulty("slowdown", index, shown) else (), "Active"),
        "remapped_rows.correctable": "0",
        "remapped_rows.uncorrectable": "0",
        "remapped_rows.pending": str(int(faulty("remap", index, shown) == "pending")),
        "remapped_rows.failure": str(int(faulty("remap", index, shown) == "failure")),
    }


def query(options: dict[str, str], names: str, gpus: list[dict[str, str]]) -> int:
    """Print the table of --query-gpu, repeat its rows with --loop; return the exit code."""
    fields, words = names.split(","), options.get("--format", "csv").split(",")
    for field in fields:
        if field not in gpu(0, {"gpu": "", "driver": "", "gpu_memory_mib": ""}):
            sys.stdout.write(f'Field "{field}" is not a valid field to query.\n\n')
            return 2
    units = {} if "nounits" in words else UNITS
    if "noheader" not in words:
        heads = (f"{field} [{units[field]}]" if field in units else field for field in fields)
        sys.stdout.write(", ".join(heads) + "\n")
    while True:
        for row in gpus:
            values = (f"{row[field]} {units.get(field, '')}".rstrip() for field in fields)
            sys.stdout.write(", ".join(values) + "\n")
        if "--loop" not in options:
            return 0
        sys.stdout.flush()
        time.sleep(float(options["--loop"]))


def nvlink(shown: dict[str, object], gpus: list[dict[str, str]], option: str) -> int:
    """Print the links of each GPU, or what they have moved; return the exit code.

    A GPU without NVSwitch has no links here.
    """
    count, speed = LINKS.get(str(shown["gpu"]), (18, "53.125")) if shown["nvswitch"] else (0, "")
    for gpu in gpus:
        sys.stdout.write(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})\n")
        down = int(str(faulty("nvlink", int(gpu["index"]), shown) or 0))
        for link in range(count):
            state = f"{speed} GB/s" if link < count - down else "<inactive>"
            shows = [state] if option == "--status" else ["Data Tx: 0 KiB", "Data Rx: 0 KiB"]
            sys.stdout.writelines(f"\t Link {link}: {text}\n" for text in shows)
    return 0


def main() -> int:
    """Print the tool's output; return its exit code."""
    shown = machine()
    count = shown["gpus"]
    if shown.get("library", shown["driver"]) != shown["driver"]:
        sys.stdout.write("Failed to initialize NVML: Driver/library version mismatch\n")
        sys.stdout.write(f"NVML library version: {str(shown['library']).rpartition('.')[0]}\n")
        return 18
    if not isinstance(count, int) or count == 0:
        sys.stdout.write(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make"
            " sure that the latest NVIDIA driver is installed and running.\n\n"
        )
        return 9
    gpus = [gpu(index, shown) for index in range(count)]
    options = dict(word.partition("=")[::2] for word in sys.argv[1:])
    if sys.argv[1:] in (["nvlink", "--status"], ["nvlink", "--getthroughput", "d"]):
        return nvlink(shown, gpus, sys.argv[2])
    for option in ("--query-gpu", "--query-remapped-rows"):
        if option in options:
            return query(options, options[option], gpus)
    if "--version" in options:
        sys.stdout.write(f"NVIDIA-SMI version  : {shown['driver']}\n")
        sys.stdout.write(f"DRIVER version      : {shown['driver']}\n")
        return 0
    for row in gpus:
        sys.stdout.write(f"GPU {row['index']}: {row['name']} (UUID: {row['uuid']})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
