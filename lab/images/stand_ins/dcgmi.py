#!/usr/bin/python3
"""A stand-in for dcgmi: `discovery -l`. The form is that of DCGM 3 and 4, from memory."""

import json
import sys
from pathlib import Path

LAB = Path("/etc/gpuctl-lab")
LINE = "+--------+----------------------------------------------------------------------+\n"


def main() -> int:
    """The tool's exit code; its output is written."""
    faults = LAB / "faults.json"
    shown = json.loads((LAB / "instance-type.json").read_text())
    shown |= json.loads(faults.read_text()) if faults.exists() else {}
    if sys.argv[1:] != ["discovery", "-l"]:
        sys.stderr.write("the lab's dcgmi knows `dcgmi discovery -l` alone\n")
        return 1
    if shown["gpus"] is None:
        sys.stdout.write("Error: Unable to get GPU information. Return: DCGM library not found\n")
        return 1
    count = shown["gpus"]
    sys.stdout.write(f"{count} {'GPU' if count == 1 else 'GPUs'} found.\n{LINE}")
    sys.stdout.write(f"| GPU ID | {'Device Information':<68} |\n{LINE}")
    for index in range(count):
        sys.stdout.write(f"| {index:<6} | {'Name: NVIDIA ' + shown['gpu']:<68} |\n")
    sys.stdout.write(LINE if count else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
