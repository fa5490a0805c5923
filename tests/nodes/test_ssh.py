"""Ssh through a real bastion to real nodes (sshd on loopback)."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from config.errors import NodeError
from nodes.answers import Completed
from nodes.fanout import on_each
from nodes.keys import ensure_key
from nodes.openssh import openssh_config, write_openssh_config
from nodes.ssh import Connections, connect
from tests.nodes.conftest import Site

pytestmark = pytest.mark.slow


def session(site: Site, use: Callable[[Connections], Awaitable[None]]) -> None:
    async def main() -> None:
        async with connect(site.inventory) as connections:
            await use(connections)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_command_gives_its_status_output_and_complaints(site: Site) -> None:
    async def use(connections: Connections) -> None:
        done = await connections.run(
            site.inventory.nodes[0], "cat; echo $SSH_CONNECTION >&2; exit 7", stdin="hälló\n"
        )
        assert (done.exit_status, done.stdout) == (7, "hälló\n")
        assert done.stderr.split()[3] == str(site.nodes[0].port)
        assert (await connections.run(site.inventory.nodes[0], "cat")).stdout == ""

    session(site, use)


def test_a_command_ended_by_a_signal_has_128_and_its_number(site: Site) -> None:
    async def use(connections: Connections) -> None:
        done = await connections.run(site.inventory.nodes[0], "kill -9 $$")
        assert done.exit_status == 137

    session(site, use)


def test_a_command_may_end_before_a_slow_client_sends_its_input(site: Site) -> None:
    async def use(connections: Connections) -> None:
        node = site.inventory.nodes[0]
        await connections.run(node, "true")
        running = asyncio.create_task(connections.run(node, "exit 97", stdin="input"))
        while not running.done():
            time.sleep(0.5)  # noqa: ASYNC251  start and end of the command come in one piece
            await asyncio.sleep(0)
        assert await running == Completed(97, "", "")

    session(site, use)


def test_nodes_are_reached_concurrently_and_only_through_the_bastion(site: Site) -> None:
    async def use(connections: Connections) -> None:
        async def greet(node: object) -> Completed:
            return await connections.run(node, "echo $SSH_CLIENT")  # type: ignore[arg-type]

        answers = await on_each(site.inventory.nodes, greet)
        assert list(answers) == [0, 1]

    session(site, use)
    site.bastion.stop()
    with pytest.raises(
        NodeError, match=r"^the bastion \(127\.0\.0\.1\) cannot be reached: Connection refused;"
    ):
        session(site, use)


def test_a_wrong_host_key_of_a_node_is_refused(site: Site, tmp_path: Path) -> None:
    known = site.inventory.folder / "known_hosts"
    other = ensure_key(tmp_path / "other", "somebody in between")
    known.write_text(known.read_text().replace(site.nodes[1].host_key, other))

    async def use(connections: Connections) -> None:
        assert (await connections.run(site.inventory.nodes[0], "true")).exit_status == 0
        with pytest.raises(
            NodeError, match=r"^node1 \(127\.0\.0\.1\) shows a host key that is not the pinned one;"
        ):
            await connections.run(site.inventory.nodes[1], "true")

    session(site, use)


def test_the_users_ssh_set_up_takes_no_part(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config leads nowhere, its agent does not answer, its known_hosts is of somebody else."""
    own = tmp_path / "home" / ".ssh"
    own.mkdir(parents=True)
    (own / "config").write_text(
        "Host *\n  ProxyCommand false\n  Ciphers aes128-cbc\n  IdentityFile /nonexistent\n"
    )
    (own / "known_hosts").write_text("* ssh-ed25519 " + "A" * 68 + "\n")
    monkeypatch.setenv("HOME", str(own.parent))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "no-agent"))

    async def use(connections: Connections) -> None:
        for node in site.inventory.nodes:
            assert (await connections.run(node, "echo here")).stdout == "here\n"

    session(site, use)


def test_without_a_bastion_nodes_are_reached_at_their_own_address(site: Site) -> None:
    first, second = site.inventory.nodes
    elsewhere = first.model_copy(update={"private_ip": "192.0.2.1", "public_ip": "127.0.0.1"})
    alone = site.inventory.model_copy(update={"bastion": None, "nodes": (elsewhere, second)})
    site.bastion.stop()

    async def use(connections: Connections) -> None:
        for node in alone.nodes:
            assert (await connections.run(node, "echo here")).stdout == "here\n"

    session(replace(site, inventory=alone), use)
    text = openssh_config(alone)
    assert "Host bastion" not in text
    assert "ProxyJump" not in text
    assert "192.0.2.1" not in text


def test_an_unknown_host_key_of_the_bastion_is_refused(site: Site) -> None:
    (site.inventory.folder / "known_hosts").write_text("")

    async def use(connections: Connections) -> None:
        raise AssertionError("connected")

    with pytest.raises(NodeError, match=r"^the bastion \(127\.0\.0\.1\) shows a host key that"):
        session(site, use)


def test_another_client_key_is_refused(site: Site) -> None:
    (site.inventory.folder / "id_ed25519").unlink()
    ensure_key(site.inventory.folder / "id_ed25519", "new")

    async def use(connections: Connections) -> None:
        raise AssertionError("connected")

    with pytest.raises(NodeError, match=r"^the bastion \(127\.0\.0\.1\) refused the cluster's key"):
        session(site, use)


def test_a_dead_node_is_named_and_its_neighbour_still_answers(site: Site) -> None:
    site.nodes[1].stop()

    async def use(connections: Connections) -> None:
        async def status(node: object) -> int:
            return (await connections.run(node, "exit 3")).exit_status  # type: ignore[arg-type]

        answers = await on_each(site.inventory.nodes, status)
        assert answers[0] == 3
        assert isinstance(answers[1], NodeError)
        assert answers[1].message.startswith(
            "node1 (127.0.0.1) cannot be reached from the bastion: "
        )

    session(site, use)


def test_a_command_that_takes_too_long_ends_the_wait(site: Site) -> None:
    async def use(connections: Connections) -> None:
        with pytest.raises(
            NodeError, match=r"^node0 \(127\.0\.0\.1\) did not answer within 0\.3 s"
        ):
            await connections.run(site.inventory.nodes[0], "sleep 60", timeout=0.3)
        assert (await connections.run(site.inventory.nodes[0], "true")).exit_status == 0

    session(site, use)


def test_lines_come_while_the_command_runs(site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def use(connections: Connections) -> None:
        seen = []
        command = (
            f"echo one; while [ ! -e {gate} ]; do sleep 0.05; done; printf 'two\\nthree'; sleep 0.2"
        )
        async for line in connections.lines(site.inventory.nodes[0], command):
            seen.append(line)
            gate.touch()
        assert seen == ["one", "two", "three"]

    session(site, use)


def test_lines_of_a_failing_command_end_in_an_error_with_its_complaint(site: Site) -> None:
    async def use(connections: Connections) -> None:
        seen = []
        with pytest.raises(
            NodeError, match=r"^node0 \(127\.0\.0\.1\): `echo a; .*` exited with 5: no such job"
        ):
            async for line in connections.lines(
                site.inventory.nodes[0], "echo a; echo; sleep 0.2; echo no such job >&2; exit 5"
            ):
                seen.append(line)
        assert seen == ["a", ""]

    session(site, use)


def test_a_lost_connection_is_opened_again(site: Site) -> None:
    async def use(connections: Connections) -> None:
        node = site.inventory.nodes[0]
        with pytest.raises(NodeError, match=r"^node0 \(127\.0\.0\.1\): "):
            await connections.run(node, "kill -9 $PPID; sleep 5")
        assert (await connections.run(node, "echo back")).stdout == "back\n"

    session(site, use)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_bastion_that_is_lost_on_the_way_is_connected_again(site: Site) -> None:
    """Its end is not known here when the next node is asked for."""

    async def use(connections: Connections) -> None:
        first, second = site.inventory.nodes
        await connections.run(first, "true")
        for child in children_of(site.bastion.process.pid):
            os.kill(child, signal.SIGKILL)
        for node in (second, first):
            assert (await connections.run(node, "echo back")).stdout == "back\n"

    session(site, use)


def test_openssh_reaches_a_node_with_the_written_config(site: Site) -> None:
    config = write_openssh_config(site.inventory)
    done = subprocess.run(
        ["ssh", "-F", str(config), "node1", "echo $SSH_CONNECTION"],
        capture_output=True,
        check=False,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[3] == str(site.nodes[1].port)
