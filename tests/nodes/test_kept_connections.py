"""Connections that outlive a command: one broker, real sshd processes behind it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from config.errors import NodeError
from nodes import dial
from nodes.answers import CommandFailed, Completed, Unreachable
from nodes.fanout import on_each
from nodes.inventory import Inventory
from nodes.kept_connections import KeptConnections, connect
from nodes.keys import ensure_key
from tests.nodes.conftest import Site
from tests.small_disks import read_only

pytestmark = pytest.mark.slow

WHO = "echo $PPID"
"""The sshd process of a connection: the same number means the same connection."""


@pytest.fixture(autouse=True)
def no_broker_is_left(site: Site) -> Iterator[None]:
    yield
    dial.end(str(site.inventory.folder))
    assert brokers(site.inventory) == []


def processes(columns: str) -> list[str]:
    listed = subprocess.run(["ps", "-wweo", columns], capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()[1:]


def living(inventory: Inventory) -> list[int]:
    """The brokers of the cluster, by their arguments."""
    lines = processes("pid,args")
    return [int(line.split()[0]) for line in lines if f"nodes.broker {inventory.folder}" in line]


def brokers(inventory: Inventory) -> list[int]:
    """The brokers that do not end, although ten seconds are waited for it."""
    for _ in range(200):
        if not living(inventory):
            break
        time.sleep(0.05)
    return living(inventory)


def use(inventory: Inventory, action: Callable[[KeptConnections], Awaitable[str]]) -> str:
    async def main() -> str:
        async with connect(inventory) as connections:
            return await action(connections)

    return asyncio.run(asyncio.wait_for(main(), 60))


def ask(inventory: Inventory, command: str, node: int = 0) -> str:
    """What the command printed, asked by a client of its own."""

    async def action(connections: KeptConnections) -> str:
        return (await connections.run(inventory.nodes[node], command)).stdout

    return use(inventory, action)


def test_the_next_client_finds_the_connection_of_the_last(site: Site) -> None:
    assert ask(site.inventory, WHO) == ask(site.inventory, WHO)
    assert (site.inventory.folder / dial.SOCKET).stat().st_mode & 0o777 == 0o600


def test_input_output_and_exit_status_are_the_commands(site: Site) -> None:
    async def action(connections: KeptConnections) -> str:
        node = site.inventory.nodes[0]
        done = await connections.run(node, "cat; echo bad >&2; exit 7", stdin="hälló\n")
        assert done == Completed(7, "hälló\n", "bad\n")
        assert (await connections.run(node, "kill -9 $$")).exit_status == 137
        return ""

    use(site.inventory, action)


def test_a_connection_that_a_cancelled_client_still_gets_is_closed(site: Site) -> None:
    node = site.inventory.nodes[0]
    path = site.inventory.folder / dial.SOCKET
    with socket.socket(socket.AF_UNIX) as broker:
        broker.bind(str(path))
        broker.listen()

        async def main() -> bytes:
            loop = asyncio.get_running_loop()
            async with connect(site.inventory) as connections:
                running = asyncio.create_task(connections.run(node, "true"))
                accepted, _ = await loop.run_in_executor(None, broker.accept)
                with accepted:
                    await loop.run_in_executor(None, accepted.recv, 1000)
                    running.cancel()
                    await asyncio.wait([running])
                    accepted.sendall(b"ok\n")
                    return await loop.run_in_executor(None, accepted.recv, 1)

        assert asyncio.run(asyncio.wait_for(main(), 60)) == b""


def test_each_node_answers_and_a_dead_one_is_unreachable(site: Site) -> None:
    site.nodes[1].stop()

    async def action(connections: KeptConnections) -> str:
        answers = await on_each(site.inventory.nodes, lambda node: connections.run(node, "exit 3"))
        assert answers[0] == Completed(3, "", "")
        assert isinstance(answers[1], Unreachable)
        assert answers[1].message.startswith("node1 (127.0.0.1) cannot be reached from the bastion")
        return ""

    use(site.inventory, action)


def test_lines_and_failures_go_through(site: Site) -> None:

    async def action(connections: KeptConnections) -> str:
        node = site.inventory.nodes[1]
        much = "x" * (1 << 20)
        assert (await connections.run(node, "wc -c", stdin=much)).stdout == "1048576\n"
        lines = [line async for line in connections.lines(node, "echo one; cat", stdin="two\n")]
        assert lines == ["one", "two"]
        with pytest.raises(NodeError, match=r"^node1 \(127\.0\.0\.1\): `echo no .*` exited with 5"):
            async for _ in connections.lines(node, "echo no >&2; exit 5"):
                pass
        return ""

    use(site.inventory, action)


def test_conversation_has_the_bytes_of_both_sides(site: Site) -> None:
    sent = bytes(range(256)) * (1 << 14)

    async def action(connections: KeptConnections) -> str:
        got = bytearray()
        async with connections.converse(site.inventory.nodes[0], "cat") as talk:

            async def send() -> None:
                for start in range(0, len(sent), 1 << 20):
                    await talk.write(sent[start : start + (1 << 20)])
                talk.end_input()

            sending = asyncio.create_task(send())
            while data := await talk.read(1 << 16):
                got += data
            await sending
        assert got == sent
        return ""

    use(site.inventory, action)


def test_conversation_with_a_command_that_fails_has_its_reason(site: Site) -> None:
    async def action(connections: KeptConnections) -> str:
        with pytest.raises(CommandFailed) as failed:
            async with connections.converse(site.inventory.nodes[0], "echo no >&2; exit 5"):
                pass
        assert failed.value.reason == "no"
        return ""

    use(site.inventory, action)


def test_conversation_whose_client_leaves_ends_its_command(site: Site, tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)

    async def action(connections: KeptConnections) -> str:
        command = f"exec 3> {held}; echo ready; exec cat"
        async with connections.converse(site.inventory.nodes[0], command) as talk:
            assert await talk.line() == b"ready\n"
            raise InterruptedError

    with pytest.raises(InterruptedError):
        use(site.inventory, action)
    assert os.read(reader, 1) == b""  # the command, which held the other end, is gone
    os.close(reader)


def test_conversation_whose_broker_is_killed_says_so(site: Site) -> None:
    async def action(connections: KeptConnections) -> str:
        async with connections.converse(site.inventory.nodes[0], "echo ready; sleep 600") as talk:
            assert await talk.line() == b"ready\n"
            [broker] = living(site.inventory)
            os.kill(broker, signal.SIGKILL)
            return (await talk.line()).decode()

    with pytest.raises(Unreachable) as lost:
        use(site.inventory, action)
    assert lost.value.message == "the broker of ssh connections to demo ended"


def test_a_socket_that_nobody_listens_on_is_no_obstacle(site: Site) -> None:
    ask(site.inventory, "true")
    [broker] = living(site.inventory)
    os.kill(broker, signal.SIGKILL)
    assert brokers(site.inventory) == []
    assert (site.inventory.folder / dial.SOCKET).exists()
    assert ask(site.inventory, "echo back") == "back\n"


def test_a_lost_bastion_is_connected_again(site: Site) -> None:
    first = ask(site.inventory, WHO)
    for line in processes("pid,ppid"):
        pid, parent = map(int, line.split())
        if parent == site.bastion.process.pid:
            os.kill(pid, signal.SIGKILL)
    assert first != ask(site.inventory, WHO)


def test_a_pinned_key_that_changed_is_an_error_although_a_connection_is_kept(
    site: Site, tmp_path: Path
) -> None:
    ask(site.inventory, "true", node=1)
    known = site.inventory.folder / "known_hosts"
    other = ensure_key(tmp_path / "other", "somebody in between")
    text = known.read_text().replace(site.nodes[1].host_key, other)
    temporary = known.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(known)
    with pytest.raises(NodeError, match=r"^node1 \(127\.0\.0\.1\) shows a host key that is not"):
        ask(site.inventory, "true", node=1)


def test_other_nodes_are_another_brokers(site: Site) -> None:
    ask(site.inventory, "true")
    first, second = site.inventory.nodes
    swapped = site.inventory.model_copy(
        update={"nodes": (first.model_copy(update={"port": second.port}), second)}
    )
    assert ask(swapped, "echo $SSH_CONNECTION").split()[3] == str(second.port)


def test_a_broker_that_nobody_uses_ends(site: Site) -> None:
    there = site.inventory
    dial.dial(str(there.folder), there.model_dump(mode="json"), idle_s=0.1).close()
    assert living(there)
    assert brokers(site.inventory) == []


def test_a_broker_whose_cluster_is_gone_ends(site: Site) -> None:
    ask(site.inventory, "true")
    gone = site.inventory.folder.rename(site.inventory.folder.with_name("gone"))
    assert brokers(site.inventory) == []
    gone.rename(site.inventory.folder)


def test_more_commands_at_once_than_sshd_takes_over_one_connection(site: Site) -> None:
    async def action(connections: KeptConnections) -> str:
        node = site.inventory.nodes[0]
        commands = (connections.run(node, f"sleep 0.5; echo {n}") for n in range(15))
        answers = await asyncio.gather(*commands)
        assert [answer.stdout for answer in answers] == [f"{n}\n" for n in range(15)]
        return ""

    use(site.inventory, action)


def test_nobody_reads_what_a_command_prints_whose_client_has_left(
    site: Site, tmp_path: Path
) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    printing = "while echo x; do sleep 0.05; done 2> /dev/null"
    command = f"trap '' PIPE; touch {begun}; {printing}; touch {ended}"
    script = (
        "import asyncio, sys\n"
        "from nodes.inventory import Inventory\n"
        "from nodes.kept_connections import connect\n"
        "async def main():\n"
        "    there = Inventory.model_validate_json(sys.stdin.read())\n"
        "    async with connect(there) as nodes:\n"
        f"        await nodes.run(there.nodes[0], {command!r})\n"
        "asyncio.run(main())\n"
    )
    text = site.inventory.model_dump_json()
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, text=True
    ) as client:
        assert client.stdin is not None
        client.stdin.write(text)
        client.stdin.close()
        wait_for(begun)
        client.kill()
    wait_for(ended)


def wait_for(path: Path) -> None:
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.05)
    raise TimeoutError(path)


def test_a_folder_with_a_long_path(site: Site) -> None:
    far = site.inventory.folder.with_name("a" * 120)
    site.inventory.folder.rename(far)
    there = site.inventory.model_copy(update={"folder": far})
    try:
        assert ask(there, WHO) == ask(there, WHO)
    finally:
        dial.end(str(far))


@pytest.mark.lab
def test_without_a_folder_that_can_be_written_the_connections_are_the_commands_own(
    site: Site,
) -> None:
    async def action(connections: KeptConnections) -> str:
        nodes = site.inventory.nodes[:2]
        answers = await connections.run_on(nodes, "cat; echo why >&2; exit 3", stdin="sent")
        assert answers == {node.name: Completed(3, "sent", "why\n") for node in nodes}
        async with connections.converse(nodes[0], "cat") as talk:
            await talk.write(b"a line\n")
            return (await talk.line()).decode()

    with read_only(site.inventory.folder):
        assert use(site.inventory, action) == "a line\n"
        assert living(site.inventory) == []
