"""The facts of all nodes at once: one command on each, bounded in time and size."""

import shlex
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from config.errors import GpuctlError
from nodes.fanout import on_each
from nodes.inventory import Node
from provision.health.facts import CHECKS, NodeFacts, read
from provision.health.judge import offset
from provision.health.model import AllFacts, Expected

if TYPE_CHECKING:
    from nodes.kept_connections import KeptConnections
    from nodes.ssh import Connections

Form = Literal["full", "short", "deep"]

LIMIT_S: Mapping[Form, float] = {"full": 180.0, "short": 45.0, "deep": 4500.0}
"""The most time of the command on a node: each of its parts has a shorter limit."""

_DISKS = ("/", "/tmp", "/dev/shm")  # noqa: S108  only their free space is read


async def gather(
    connections: "Connections | KeptConnections",
    nodes: Sequence[Node],
    expected: Expected,
    form: Form,
    folders: Sequence[str] = (),
) -> AllFacts:
    """Return the facts of the nodes; `folders` are further ones whose free space counts.

    A node that does not answer has its error, and does not delay the others' answers.
    """
    text = script(expected, form, folders)

    by_rank = await on_each(nodes, lambda node: ask(connections, node, text, form))
    answers: dict[str, NodeFacts | GpuctlError] = {}
    offsets: dict[str, float] = {}
    for node in nodes:
        answer = by_rank[node.rank]
        if isinstance(answer, GpuctlError):
            answers[node.name] = answer
        else:
            answers[node.name], offsets[node.name] = answer
    return AllFacts(expected, answers, offsets)


async def ask(
    connections: "Connections | KeptConnections", node: Node, text: str, form: Form
) -> tuple[NodeFacts, float]:
    """Return the node's facts, and by how many seconds its clock is off at least.

    `text` is the script of the form. Raises NodeError if the node does not answer.
    """
    sent = time.time()
    done = await connections.run(node, "bash -s", stdin=text, timeout=LIMIT_S[form])
    facts = read(done.stdout)
    return facts, offset(sent, time.time(), facts)


def script(expected: Expected, form: Form, folders: Sequence[str] = ()) -> str:
    """Return the bash script that prints a node's facts."""
    values = {
        "form": form,
        "gpus": str(expected.gpus),
        "efa": str(expected.efa),
        "nvswitch": "yes" if expected.nvlinks else "",
        "names": " ".join(expected.addresses),
        "disks": " ".join((*_DISKS, *folders)),
        "verify": CHECKS if expected.has_checks else "",
    }
    return "".join(f"{name}={shlex.quote(text)}\n" for name, text in values.items()) + _script()


@cache
def _script() -> str:
    return Path(__file__).with_name("facts.sh").read_text()
