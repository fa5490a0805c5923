"""The result of cloud-init on a machine, as all versions since 22.2 report it.

`/run/cloud-init/result.json` has the errors that failed the boot. `/run/cloud-init/status.json` has
those of each stage; since 23.4 also recoverable ones, by their severity
(https://github.com/canonical/cloud-init/blob/22.2.2/cloudinit/cmd/main.py and .../25.2/..., read
2026-11-22).
"""

import json
from dataclasses import dataclass
from typing import Any

STATE = "/run/cloud-init"
"""The folder of the files with cloud-init's result."""

RESULT = f"{STATE}/result.json"


@dataclass(frozen=True)
class CloudInitResult:
    """The end of cloud-init: `state` as `cloud-init status` names it, empty if it did not answer.

    `errors` is None if cloud-init wrote no result. `warnings` is the number of recoverable errors.
    """

    state: str
    errors: tuple[str, ...] | None
    warnings: int = 0

    @property
    def problem(self) -> str:
        """Return the reason why cloud-init failed, empty if it succeeded.

        `done` and `degraded done` (only recoverable errors) are successes.
        """
        if self.errors or self.state == "error":
            return f"cloud-init failed: {(self.errors or ('no reason given',))[0]}"
        if self.state.split()[-1:] not in (["done"], ["degraded"]):
            return f"cloud-init ended as '{self.state or 'unknown'}'"
        if self.errors is None:
            return f"cloud-init ended as '{self.state}' without a result in {RESULT}"
        return ""


def read_result(status: str, result: str, stages: str) -> CloudInitResult:
    """Return the result from the outputs of `cloud-init status --wait` and of its two files.

    While it waits, `cloud-init status` prints dots in front of its line.
    """
    named = [line.partition("status: ")[2] for line in status.splitlines() if "status: " in line]
    entries = _object(result).get("errors")
    errors = tuple(" ".join(str(e).split()) for e in entries) if isinstance(entries, list) else None
    return CloudInitResult(
        state=named[-1].strip() if named else "",
        errors=errors,
        warnings=sum(_warnings(stage) for stage in _object(stages).values()),
    )


def _warnings(stage: object) -> int:
    by_level = stage.get("recoverable_errors") if isinstance(stage, dict) else None
    return sum(len(lines) for lines in by_level.values()) if isinstance(by_level, dict) else 0


def _object(text: str) -> dict[str, Any]:
    """Return the object `v1` of a file of cloud-init, {} if there is none."""
    try:
        document = json.loads(text)["v1"]
    except (ValueError, KeyError, TypeError):
        return {}
    return document if isinstance(document, dict) else {}
