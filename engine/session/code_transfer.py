"""Send a run's tree to all its nodes: once to the head, which passes it on.

The conversation is that of engine/agent/node/code_store.py.
"""

import json
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from config.command_text import command_text
from config.errors import InputError, NodeError, RunError
from config.files import open_regular
from config.folded_names import fold
from config.foreign import Malformed, parse_foreign
from config.identifiers import NodeName
from config.models import Value
from config.progress import Progress, Reporter, State
from engine.contract.plan import LaunchPlan
from engine.plan.remote_paths import runs_folder
from engine.plan.source_tree import Tree
from engine.session.bundle import agent_bundle, ship_agent
from nodes.conversation import LONGEST_LINE, Conversation
from nodes.inventory import Inventory
from nodes.kept_connections import connect


class _Missing(Value):
    """The head lacks these files; they are sent at once."""

    kind: Literal["missing"]
    blobs: tuple[str, ...]


class _NodeAnswer(Value):
    """A node has the tree, or the reason why not."""

    kind: Literal["received", "failed"]
    node: NodeName
    reason: str = ""


_ANSWERS: Any = Annotated[_Missing | _NodeAnswer, Field(discriminator="kind")]


def _answer(line: bytes | str, head: str, nodes: Collection[str]) -> _Missing | _NodeAnswer:
    """Return the head's answer; NodeError for another text, and for a node that is none of these.

    A job is root on the head.
    """
    try:
        answer: _Missing | _NodeAnswer = parse_foreign(_ANSWERS, line, LONGEST_LINE)
        if isinstance(answer, _NodeAnswer) and answer.node not in nodes:
            raise Malformed(f"{answer.node} is no node of the run")  # noqa: TRY301
    except Malformed as error:
        raise NodeError(f"{head} gave a wrong answer about the code: {error}", "") from None
    return answer


_STAGE = "code"
_PIECE = 1 << 20
_PASS_S = 3600


async def send_tree(tree: Tree, plan: LaunchPlan, inventory: Inventory, report: Reporter) -> None:
    """Send the tree to the plan's nodes; return when each has the whole tree.

    Raises RunError with the reason of each node that could not take it.
    """
    head = inventory.nodes[0]
    names = {head.name, *(node.name for node in plan.nodes)}
    others = (node for node in plan.nodes if node.name != head.name)
    onward = [{"name": node.name, "private_ip": node.private_ip} for node in others]
    header = {"tree": tree.digest, "entries": tree.entries, "node": head.name, "onward": onward}
    command = agent_bundle().command(inventory, "receive", runs_folder(inventory))
    states: dict[str, str] = {}
    async with connect(inventory) as connections:
        await ship_agent(connections, inventory)
        report(Progress(_STAGE, head.name, "start"))
        async with connections.converse(head, command) as talk:
            await talk.write(json.dumps(header).encode() + b"\n")
            async for line in talk.lines():
                answer = _answer(line, head.name, names)
                if isinstance(answer, _Missing):
                    await _send_blobs(tree, answer.blobs, talk, head.name, report)
                    continue
                states[answer.node] = answer.reason
                state: State = "failed" if answer.reason else "done"
                report(Progress(_STAGE, answer.node, state, answer.reason))
    _check(plan, states)


async def pass_tree(plan: LaunchPlan, inventory: Inventory, names: Collection[str]) -> None:
    """Send the plan's tree from the head, which has it, to these nodes of the inventory.

    Raises RunError with the reason of each node that could not take it.
    """
    if plan.code is None or not plan.code.tree:
        return
    head = inventory.nodes[0]
    nodes = [node for node in inventory.nodes if node.name in names]
    onward = [{"name": node.name, "private_ip": node.private_ip} for node in nodes]
    header = {"tree": plan.code.tree, "node": head.name, "onward": onward}
    command = agent_bundle().command(inventory, "receive", runs_folder(inventory))
    async with connect(inventory) as connections:
        await ship_agent(connections, inventory)
        text = json.dumps(header) + "\n"
        done = await connections.run(head, command, stdin=text, timeout=_PASS_S)
    answers = [_answer(line, head.name, {head.name, *names}) for line in done.stdout.splitlines()]
    states = {each.node: each.reason for each in answers if isinstance(each, _NodeAnswer)}
    of_these = tuple(node for node in plan.nodes if node.name in names)
    _check(replace(plan, nodes=of_these), states)


async def _send_blobs(
    tree: Tree, missing: Sequence[str], talk: Conversation, head: str, report: Reporter
) -> None:
    """Send the files that the head lacks; report how much of them was sent.

    Raises NodeError if it asks for something else: a job is root there.
    """
    sizes = {content: size for _, kind, _, content, size in tree.entries if kind == "file"}
    if len(set(missing)) != len(missing) or not sizes.keys() >= set(missing):
        raise NodeError(f"{head} asks for files that the run does not have, or twice", "")
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
        first = next(iter(reasons.values()))[0]
        raise RunError(
            f"the code cannot be sent to all nodes: {per_node}",
            f"log in with {command_text('gpuctl ssh {} {}', plan.cluster, first)} to find out why",
        )
    silent = [node.name for node in plan.nodes if node.name not in states]
    if silent:
        raise RunError(
            f"the code cannot be sent to all nodes: {fold(silent)} did not answer",
            f"{command_text('gpuctl status {}', plan.cluster)} shows which nodes run",
        )
