"""The output of `dcgmi diag -r 3 -j`.

DCGM 4: `{"DCGM Diagnostic": {"test_categories": [{"tests": [{"name", "results": [{"entity_group",
"entity_id", "status", "warnings": [{"error_severity", "warning"}]}]}]}]}}` (NVIDIA/DCGM,
testing/python3, 2026-11-23). DCGM 3 has the key "DCGM GPU Diagnostic", `gpu_ids`, and texts as
warnings.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DcgmFailure:
    """A failed test of DCGM's diagnostic; `severity` is DCGM's number, 0 if it gives none."""

    test: str
    gpu: str
    severity: int
    text: str


def read_diagnostic(text: str, status: str) -> tuple[tuple[DcgmFailure, ...], str]:
    """Return the failed tests, and why there is no result; both are empty without output."""
    if not status:
        return (), ""
    try:
        document = json.loads(text)
        diagnostic = document.get("DCGM Diagnostic") or document["DCGM GPU Diagnostic"]
        failures = tuple(_failures(diagnostic["test_categories"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        last = (text.splitlines() or ["it printed nothing"])[-1]
        return (), f"dcgmi ended with {status}: {last[:200]}"
    return failures, ""


def _failures(categories: list[Any]) -> Iterator[DcgmFailure]:
    for test in (test for category in categories for test in category["tests"]):
        for result in test["results"]:
            if str(result["status"]).lower() != "fail":
                continue
            warnings = result.get("warnings") or [{}]
            first = warnings[0] if isinstance(warnings, list) else warnings
            known = first if isinstance(first, dict) else {"warning": first}
            severity = known.get("error_severity", 0)
            gpu = result.get("entity_id", result.get("gpu_ids", ""))
            words = str(known.get("warning", "no reason given"))
            number = severity if isinstance(severity, int) else 0
            yield DcgmFailure(str(test["name"]), str(gpu), number, words)
