"""Send a run's tree to all its nodes: once to the head, which passes it on.

The conversation is that of engine/agent/node/code_store.py.
"""

import json
import os
import shlex
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from config.errors import InputError, RunError
from config.files import open_regular
from config.folded_names import fold
from config.progress import Progress, Reporter
from engine.contract.plan import LaunchPlan
from engine.plan.remote_paths import runs_folder
from engine.plan.source_tree import Tree
from engine.session.bundle import agent_bundle, ship_agent
from nodes.conversation import Conversation
from nodes.inventory import Inventory
from nodes.kept_connections import connect

_STAGE = "code"
_PIECE = 1 << 20
_PASS_S = 3600


async def send_tree(tree: Tree, plan: LaunchPlan, inventory: Inventory, report: Reporter) -> None:
    """Send the tree to the plan's nodes; return when each has the whole tree.

    Raises RunError with the reason of each node that could not take it.
    """
    head, bundle = inventory.nodes[0], agent_bundle()
    others = (node for node in plan.nodes if node.name != head.name)
    onward = [{"name": node.name, "private_ip": node.private_ip} for node in others]
    header = {"tree": tree.digest, "entries": tree.entries, "node": head.name, "onward": onward}
    command = shlex.join(["python3", "-IS", bundle.program, "receive", runs_folder()])
    states: dict[str, str] = {}
    async with connect(inventory) as connections:
        await ship_agent(connections, head)
        report(Progress(_STAGE, head.name, "start"))
        async with connections.converse(head, command) as talk:
            await talk.write(json.dumps(header).encode() + b"\n")
            async for line in talk.lines():
                answer = json.loads(line)
                if answer["kind"] == "missing":
                    await _send_blobs(tree, answer["blobs"], talk, head.name, report)
                    continue
                node, reason = answer["node"], answer.get("reason", "")
                states[node] = reason
                report(Progress(_STAGE, node, "failed" if reason else "done", reason))
    _check(plan, states)


async def pass_tree(plan: LaunchPlan, inventory: Inventory, names: Collection[str]) -> None:
    """Send the plan's tree from the head, which has it, to these nodes of the inventory.

    Raises RunError with the reason of each node that could not take it.
    """
    if plan.code is None or not plan.code.tree:
        return
    head, bundle = inventory.nodes[0], agent_bundle()
    nodes = [node for node in inventory.nodes if node.name in names]
    onward = [{"name": node.name, "private_ip": node.private_ip} for node in nodes]
    header = {"tree": plan.code.tree, "node": head.name, "onward": onward}
    command = shlex.join(["python3", "-IS", bundle.program, "receive", runs_folder()])
    async with connect(inventory) as connections:
        await ship_agent(connections, head)
        text = json.dumps(header) + "\n"
        done = await connections.run(head, command, stdin=text, timeout=_PASS_S)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    states = {answer["node"]: answer.get("reason", "") for answer in answers if "node" in answer}
    of_these = tuple(node for node in plan.nodes if node.name in names)
    _check(replace(plan, nodes=of_these), states)


async def _send_blobs(
    tree: Tree, missing: list[str], talk: Conversation, head: str, report: Reporter
) -> None:
    """Send the files that the head lacks; report how much of them was sent."""
    sizes = {content: size for _, kind, _, content, size in tree.entries if kind == "file"}
    total, sent = sum(sizes[blob] for blob in missing), 0
    for blob in missing:
        for data in _pieces(tree.local[blob], sizes[blob]):
            await talk.write(data)
            sent += len(data)
            if len(data) == _PIECE:
                detail = f"{sent >> 20} of {total >> 20} MiB"
                report(Progress(_STAGE, head, "running", detail))
    talk.end_input()


def _pieces(path: Path, size: int) -> Iterator[bytes]:
    """Yield exactly `size` bytes of the file; InputError if it has fewer by now."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            while size and (data := file.read(min(size, _PIECE))):
                yield data
                size -= len(data)
    except OSError:
        pass  # reported below: it was readable a moment ago
    if size:
        raise InputError(f"{path} changed while it was sent", "run again")


def _check(plan: LaunchPlan, states: dict[str, Any]) -> None:
    reasons: dict[str, list[str]] = {}
    for node, reason in states.items():
        if reason:
            reasons.setdefault(reason, []).append(node)
    if reasons:
        per_node = "; ".join(f"{fold(names)}: {reason}" for reason, names in reasons.items())
        raise RunError(
            f"the code cannot be sent to all nodes: {per_node}",
            f"log in with `gpuctl ssh {plan.cluster} {next(iter(reasons.values()))[0]}` to find"
            " out why",
        )
    silent = [node.name for node in plan.nodes if node.name not in states]
    if silent:
        raise RunError(
            f"the code cannot be sent to all nodes: {fold(silent)} did not answer",
            f"`gpuctl status {plan.cluster}` shows which nodes run",
        )
