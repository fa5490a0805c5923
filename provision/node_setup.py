"""Cloud-init on a node: waited for on the node itself, and shown when it failed."""

import json
import re
from typing import Any

from config.errors import NodeError
from config.progress import Progress, Reporter
from nodes.inventory import Node
from nodes.ssh import Connections
from provision.cloud_init import DONE, MARK, STEPS

SETUP_LIMIT_S = 3 * 3600
"""No set-up takes longer; a package mirror that hangs does."""

_STATUS_FOLLOWS = "=== cloud-init status ==="

WAIT = f"""\
mkdir -p {STEPS.rpartition("/")[0]}
tail -n +1 -F --pid=$$ {STEPS} 2>/dev/null &
follower=$!
status=$(timeout {SETUP_LIMIT_S} cloud-init status --wait --format json 2>/dev/null)
kill $follower 2>/dev/null
echo
echo '{_STATUS_FOLLOWS}'
printf '%s\\n' "$status"
"""
"""Blocks on the node until cloud-init has ended; the steps come as they begin, the status last."""

_LOG_FOLLOWS = "=== cloud-init.log ==="

DETAILS = f"""\
tail -n 500 /var/log/cloud-init-output.log
echo
echo '{_LOG_FOLLOWS}'
grep -E 'WARNING|ERROR|CRITICAL' /var/log/cloud-init.log | tail -n 5
"""

_FAILED_STEP = re.compile(r"gpuctl: '(.*)' failed with exit code (\d+)")
OUTPUT_LINES = 20


async def wait_for_cloud_init(connections: Connections, node: Node, report: Reporter) -> None:
    """Cloud-init has ended well on the node.

    Raises NodeError with the failing step's own output, or the failing module's log lines, as
    soon as cloud-init has ended otherwise. What its JSON says counts and not its exit code, which
    differs between distributions (https://github.com/canonical/cloud-init/pull/4747, 2026-11-20).
    """
    report(Progress("cloud-init", node.name, "running"))
    told: list[str] | None = None
    async for line in connections.lines(node, WAIT):
        if told is not None:
            told.append(line)
        elif line == _STATUS_FOLLOWS:
            told = []
        elif line and line != DONE:
            report(Progress("cloud-init", node.name, "running", line))
    status = read_status("\n".join(told or ()))
    if problem := cloud_init_problem(status):
        report(Progress("cloud-init", node.name, "failed", problem))
        details = await connections.run(node, DETAILS, timeout=60)
        raise failure(node, problem, details.stdout)
    warned = sum(len(lines) for lines in status.get("recoverable_errors", {}).values())
    detail = f"done, with {warned} warnings in /var/log/cloud-init.log" if warned else ""
    report(Progress("cloud-init", node.name, "done", detail))


def read_status(text: str) -> dict[str, Any]:
    """The JSON object in `cloud-init status --format json`'s output; {} where there is none.

    Old versions print dots before it while they wait.
    """
    try:
        status = json.loads(text[text.index("{") :])
    except ValueError:
        return {}
    return status if isinstance(status, dict) else {}


def cloud_init_problem(status: dict[str, Any]) -> str:
    """Why the node is not set up, in some words; empty when it is.

    `done` and `degraded` (recoverable errors alone) are good.
    """
    state = str(status.get("status", "unknown"))
    if status.get("errors") or state == "error":
        first = next(iter(status.get("errors") or ()), "no reason given")
        return f"cloud-init failed: {_one_line(first)}"
    if state in ("done", "degraded"):
        return ""
    return f"cloud-init ended as '{state}'"


def failure(node: Node, problem: str, details: str) -> NodeError:
    """The error about a failed cloud-init, with the failing step's own output.

    `details` is what `DETAILS` printed. Without a step of ours that failed, the last lines of
    cloud-init's log are shown, which name the module.
    """
    output, _, log = details.partition(f"{_LOG_FOLLOWS}\n")
    lines = output.rstrip().splitlines()
    ended = [i for i, line in enumerate(lines) if _FAILED_STEP.search(line)]
    where = f"{node.name} ({node.private_ip})"
    if not ended:
        shown = log.rstrip().splitlines() or lines[-OUTPUT_LINES:]
        return NodeError(f"{where}: {problem}", f"its log says:{_indented(shown)}")
    step = _FAILED_STEP.search(lines[ended[-1]])
    assert step is not None
    begins = [i for i, line in enumerate(lines[: ended[-1]]) if line.startswith(MARK)]
    shown = lines[begins[-1] + 1 if begins else 0 : ended[-1]][-OUTPUT_LINES:]
    return NodeError(
        f"{where}: '{step[1]}' failed with exit code {step[2]}",
        f"its output:{_indented(shown)}" if shown else "it had no output",
    )


def _indented(lines: list[str]) -> str:
    return "".join(f"\n    | {line}" for line in lines)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
