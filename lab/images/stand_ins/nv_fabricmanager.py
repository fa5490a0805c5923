#!/usr/bin/python3 -IS
"""A stand-in for NVIDIA's fabric manager: `--version`, and a service that stays."""

import json
import os
import signal
import sys

LAB = "/etc/gpuctl-lab"


def main() -> int:
    """Print the tool's output; return its exit code."""
    with open(f"{LAB}/instance-type.json") as file:
        shown = json.load(file)
    if os.path.exists(f"{LAB}/faults.json"):
        with open(f"{LAB}/faults.json") as file:
            shown |= json.load(file)
    if "--version" in sys.argv:
        sys.stdout.write(f"Fabric Manager version is : {shown['fabricmanager']}\n")
        return 0
    if shown["fabricmanager"] != shown["driver"]:
        sys.stderr.write("fabric manager version and NVIDIA driver version do not match\n")
        return 1
    signal.pause()  # until systemd ends it
    return 0


if __name__ == "__main__":
    sys.exit(main())
