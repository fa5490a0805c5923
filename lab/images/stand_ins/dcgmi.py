#!/usr/bin/python3 -IS
"""A stand-in for dcgmi: `discovery -l` and `diag -r 3 -j`.

The form of the first is that of DCGM 3 and 4, from memory. That of the second is what DCGM 4.2
prints: `test_categories` with results for each entity (NVIDIA/DCGM, testing/python3, 2026-11-23).
"""

import json
import os
import sys

LAB = "/etc/gpuctl-lab"
LINE = "+--------+----------------------------------------------------------------------+\n"


TESTS = (
    ("Deployment", ("software",)),
    ("Integration", ("pcie",)),
    ("Hardware", ("memory", "diagnostic", "nvbandwidth")),
    ("Stress", ("targeted_stress", "targeted_power", "memory_bandwidth")),
)


def diag(count: int, failing: object) -> int:
    """Print a diagnostic in which the test `failing` fails on one GPU; return its exit code."""
    categories = []
    for category, names in TESTS:
        tests = []
        for name in names:
            results: list[dict[str, object]] = []
            for gpu in range(count):
                result: dict[str, object] = {"entity_group": "GPU", "entity_id": gpu}
                result["status"] = "Pass"
                if name == failing and gpu == min(1, count - 1):
                    text = f"Detected a failure of the {name} test in GPU {gpu}."
                    result["status"] = "Fail"
                    result["warnings"] = [
                        {"error_category": 1, "error_id": 38, "error_severity": 2, "warning": text}
                    ]
                results.append(result)
            status = "Fail" if name == failing else "Pass"
            tests.append({"name": name, "results": results, "test_summary": {"status": status}})
        categories.append({"category": category, "tests": tests})
    document = {
        "DCGM Diagnostic": {"test_categories": categories},
        "metadata": {"version": "4.7.0"},
    }
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return 226 if failing else 0


def main() -> int:
    """Print the tool's output; return its exit code."""
    with open(f"{LAB}/instance-type.json") as file:
        shown = json.load(file)
    if os.path.exists(f"{LAB}/faults.json"):
        with open(f"{LAB}/faults.json") as file:
            shown |= json.load(file)
    if sys.argv[1:] not in (["discovery", "-l"], ["diag", "-r", "3", "-j"]):
        sys.stderr.write("the lab's dcgmi knows `discovery -l` and `diag -r 3 -j` alone\n")
        return 1
    if shown["gpus"] is None:
        sys.stdout.write("Error: Unable to get GPU information. Return: DCGM library not found\n")
        return 1
    count = shown["gpus"]
    if sys.argv[1] == "diag":
        return diag(count, shown.get("dcgm"))
    sys.stdout.write(f"{count} {'GPU' if count == 1 else 'GPUs'} found.\n{LINE}")
    sys.stdout.write(f"| GPU ID | {'Device Information':<68} |\n{LINE}")
    for index in range(count):
        sys.stdout.write(f"| {index:<6} | {'Name: NVIDIA ' + shown['gpu']:<68} |\n")
    sys.stdout.write(LINE if count else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
