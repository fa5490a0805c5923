"""The head reaches every node before `up` says ready."""

import asyncio
import os
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from config.errors import NodeError
from config.progress import Progress
from nodes.inventory import Node
from nodes.ssh import Connections
from provision.setup import reach
from tests.engine.conftest import make_inventory

SSH = """#!/bin/bash
for word in "$@"; do case $word in root@*) ip=${word#root@};; esac; done
echo "$ip" >> "$TRIES"
case $ip in
    10.213.1.11) exit 0;;
    10.213.1.12) [ "$(grep -c "$ip" "$TRIES")" -ge 2 ];;
    *) printf "%s\n" "Warning: x" "ssh: connect to host $ip port 22: refused" >&2; exit 255;;
esac
"""


class Head(Connections):
    """The head is this machine, and its ssh is the one above."""

    def __init__(self) -> None:
        pass

    async def lines(
        self, node: Node, command: str, *, stdin: str | None = None
    ) -> AsyncGenerator[str, None]:
        assert node.name == "node0"
        process = await asyncio.create_subprocess_shell(command, stdin=PIPE, stdout=PIPE)
        assert stdin is not None
        for line in (await process.communicate(stdin.encode()))[0].decode().splitlines():
            yield line


@pytest.fixture
def tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which every try to reach an address is noted."""
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TRIES", str(tmp_path / "tries"))
    return tmp_path / "tries"


def test_a_node_that_answers_late_is_tried_again(tries: Path) -> None:
    seen: list[Progress] = []
    asyncio.run(reach.reach_every_node(Head(), make_inventory(3), seen.append))
    assert sorted((p.subject, p.state) for p in seen if p.state != "running") == [
        ("node1", "done"),
        ("node2", "done"),
    ]
    assert sorted(tries.read_text().split()) == ["10.213.1.11", "10.213.1.12", "10.213.1.12"]


def test_nodes_that_are_not_reached_are_named_with_what_ssh_said(tries: Path) -> None:
    seen: list[Progress] = []
    with pytest.raises(NodeError) as raised:
        asyncio.run(reach.reach_every_node(Head(), make_inventory(5), seen.append, 0))
    complaint = "ssh: connect to host 10.213.1.{} port 22: refused"
    said = [
        "node0 cannot reach node2 (10.213.1.12) by ssh: it said nothing",
        f"node0 cannot reach node3 (10.213.1.13) by ssh: {complaint.format(13)}",
        f"node0 cannot reach node4 (10.213.1.14) by ssh: {complaint.format(14)}",
    ]
    assert sorted(raised.value.message.splitlines()) == said
    assert {p.subject for p in seen if p.state == "failed"} == {"node2", "node3", "node4"}


def test_one_node_has_nobody_to_reach(tries: Path) -> None:
    asyncio.run(reach.reach_every_node(Head(), make_inventory(1), lambda _: None))
    assert not tries.exists()
