#!/usr/bin/python3 -IS
"""A stand-in for libfabric's fi_info: `-p efa [-t FI_EP_RDM] [-c FI_HMEM]`.

A device is shown by two fabrics, as since libfabric 2: `efa` and `efa-direct`.
"""

import json
import os
import sys

LAB = "/etc/gpuctl-lab"
ENTRY = """\
provider: efa
    fabric: {fabric}
    domain: {domain}
    version: 206.0
    type: FI_EP_RDM
    protocol: FI_PROTO_EFA
"""


def main() -> int:
    """Print the tool's output; return its exit code."""
    with open(f"{LAB}/instance-type.json") as file:
        shown = json.load(file)
    if os.path.exists(f"{LAB}/faults.json"):
        with open(f"{LAB}/faults.json") as file:
            shown |= json.load(file)
    if not shown["efa"] or ("FI_HMEM" in sys.argv and shown.get("gpudirect") == "no"):
        sys.stderr.write("fi_getinfo: -61 (No data available)\n")
        return 61
    for fabric in ("efa", "efa-direct"):
        for index in range(shown["efa"]):
            domain = f"rdmap{79 + index // 4 * 16}s{index % 4}-rdm"
            sys.stdout.write(ENTRY.format(fabric=fabric, domain=domain))
    return 0


if __name__ == "__main__":
    sys.exit(main())
