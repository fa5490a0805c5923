#!/usr/bin/python3
"""A stand-in for NVIDIA's fabric manager: `--version`, and a service that stays."""

import json
import signal
import sys
from pathlib import Path

LAB = Path("/etc/gpuctl-lab")


def main() -> int:
    """The tool's exit code; its output is written."""
    faults = LAB / "faults.json"
    shown = json.loads((LAB / "instance-type.json").read_text())
    shown |= json.loads(faults.read_text()) if faults.exists() else {}
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
