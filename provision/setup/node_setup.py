"""The wait for cloud-init on a node, with its output if it fails.

The result is read as all versions of cloud-init since 22.2 report it:
`/run/cloud-init/result.json` has the errors that failed the boot. `/run/cloud-init/status.json` has
those of each stage; since 23.4 also recoverable ones, by their severity
(https://github.com/canonical/cloud-init/blob/22.2.2/cloudinit/cmd/main.py and .../25.2/..., read
2026-11-22).
"""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import NodeError
from config.progress import Progress, Reporter
from nodes.answers import Unreachable
from nodes.inventory import Node
from nodes.ssh import Connections
from provision.setup.cloud_init import MARK, REBOOTING, STEPS
from provision.setup.software.script import DONE

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


SETUP_LIMIT_S = 3 * 3600
"""The most time of a set-up, against package mirrors that never answer."""

_STEPS_FOLLOW = "=== all steps ==="
_STATUS_FOLLOWS = "=== cloud-init status ==="
_RESULT_FOLLOWS = "=== result.json ==="
_STAGES_FOLLOW = "=== status.json ==="


def _wait() -> str:
    """Return the bash script with its variables."""
    values = {
        "steps": STEPS,
        "state": STATE,
        "limit": str(SETUP_LIMIT_S),
        "steps_follow": _STEPS_FOLLOW,
        "status_follows": _STATUS_FOLLOWS,
        "result_follows": _RESULT_FOLLOWS,
        "stages_follow": _STAGES_FOLLOW,
    }
    set_all = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    return set_all + Path(__file__).with_name("wait.sh").read_text()


WAIT = _wait()
"""A bash script that waits on the node until cloud-init has ended. It prints each step as it
begins, and at the end all steps, cloud-init's status, and the files with its result.

It asks cloud-init only if the files with its result leave something open
(docs/develop/node-health.md). `status` has no option: Amazon Linux 2023
has cloud-init 22.2.2, which knows no `--format`
(https://github.com/canonical/cloud-init/blob/22.2.2/cloudinit/cmd/status.py, and the packages of
https://docs.aws.amazon.com/linux/al2023/release-notes/relnotes-2023.8.20250818.html, 2026-11-22).
"""

_LOG_FOLLOWS = "=== cloud-init.log ==="

DETAILS = f"""\
tail -n 500 /var/log/cloud-init-output.log
echo
echo '{_LOG_FOLLOWS}'
grep -E 'WARNING|ERROR|CRITICAL' /var/log/cloud-init.log | tail -n 5
"""

_FAILED_STEP = re.compile(r"gpuctl: '(.*)' failed with exit code (\d+)")
OUTPUT_LINES = 20


class Rebooting(NodeError):
    """The node reboots as a step of its set-up, and comes back."""


async def wait_for_cloud_init(connections: Connections, node: Node, report: Reporter) -> None:
    """Wait until cloud-init has succeeded on the node.

    Raises NodeError with the failing step's output, or the failing module's log lines, as soon as
    cloud-init has failed. gpuctl judges by cloud-init's files, because its exit code differs
    between distributions (https://github.com/canonical/cloud-init/pull/4747, 2026-11-20). Raises
    Rebooting if the set-up continues after a reboot: wait for the node, and call again.
    """
    report(Progress("cloud-init", node.name, "running"))
    step, result = await _follow(connections, node, report)
    if step == REBOOTING:
        raise Rebooting(f"{node.label} reboots", "it comes back by itself")
    problem = result.problem
    if not problem and step != DONE:
        problem = f"cloud-init ended before the set-up was complete: its last step is '{step}'"
    if problem:
        report(Progress("cloud-init", node.name, "failed", problem))
        details = await connections.run(node, DETAILS, timeout=60)
        raise failure(node, problem, details.stdout)
    warned = f"done, with {result.warnings} warnings in /var/log/cloud-init.log"
    detail = warned if result.warnings else ""
    report(Progress("cloud-init", node.name, "done", detail))


async def _follow(
    connections: Connections, node: Node, report: Reporter
) -> tuple[str, CloudInitResult]:
    """Return the last step that began, and cloud-init's result, which is empty if it reboots."""
    seen: list[str] = []
    follow = (_STEPS_FOLLOW, _STATUS_FOLLOWS, _RESULT_FOLLOWS, _STAGES_FOLLOW)
    parts: dict[str, list[str]] = {marker: [] for marker in follow}
    steps, into = parts[_STEPS_FOLLOW], seen
    try:
        async for line in connections.lines(node, shlex.join(["exec", "bash", "-c", WAIT])):
            if line in parts:
                into = parts[line]
            elif line:
                into.append(line)
                # The follower may end before the last quick steps; the list of all steps has them.
                if into is seen or (into is steps and len(steps) > len(seen)):
                    _report_step(line, node, report)
    except Unreachable:
        if seen[-1:] != [REBOOTING]:
            raise
    last = (steps or seen or [""])[-1]
    return last, read_result(*("\n".join(parts[marker]) for marker in follow[1:]))


def _report_step(step: str, node: Node, report: Reporter) -> None:
    if step != DONE:
        report(Progress("cloud-init", node.name, "running", step))


def failure(node: Node, problem: str, details: str) -> NodeError:
    """Return the error for a failed cloud-init, with the failing step's output.

    `details` is the output of `DETAILS`. If no step of gpuctl failed, the error has the last lines
    of cloud-init's log, which name the module.
    """
    output, _, log = details.partition(f"{_LOG_FOLLOWS}\n")
    lines = output.rstrip().splitlines()
    ended = [i for i, line in enumerate(lines) if _FAILED_STEP.search(line)]
    if not ended:
        shown = log.rstrip().splitlines() or lines[-OUTPUT_LINES:]
        return NodeError(f"{node.label}: {problem}", f"its log says:{_indented(shown)}")
    step = _FAILED_STEP.search(lines[ended[-1]])
    assert step is not None
    begins = [i for i, line in enumerate(lines[: ended[-1]]) if line.startswith(MARK)]
    shown = lines[begins[-1] + 1 if begins else 0 : ended[-1]][-OUTPUT_LINES:]
    return NodeError(
        f"{node.label}: '{step[1]}' failed with exit code {step[2]}",
        f"its output:{_indented(shown)}" if shown else "it had no output",
    )


def _indented(lines: list[str]) -> str:
    return "".join(f"\n    | {line}" for line in lines)
