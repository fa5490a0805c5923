"""Commands on nodes whose shell prints as it starts: nothing of that is the command's."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from config.errors import NodeError
from nodes.answers import MOST_NOISE
from nodes.copy import copy_from, copy_to
from nodes.ssh import Connections, connect
from tests.nodes.conftest import Site

pytestmark = pytest.mark.slow

NOISE = [
    "echo Welcome",
    "echo Welcome; echo Hello >&2",
    "printf 'no line end'; printf 'nor here' >&2",
    "cat /no/such/file",
    "trap 'echo bye; echo bye >&2' EXIT",
    "seq 1 50000",
    "printf '\\377\\000\\n'",
]


def write_bashrc(tmp_path: Path, text: str) -> None:
    """Write ~/.bashrc of the nodes and the bastion; bash reads it when sshd calls it."""
    for server in range(3):
        (tmp_path / f"sshd{server}" / ".bashrc").write_text(f"{text}\n")


def session(site: Site, use: Callable[[Connections], Awaitable[None]]) -> None:
    async def main() -> None:
        async with connect(site.inventory) as connections:
            await use(connections)

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("noise", NOISE)
def test_what_a_shell_prints_is_not_the_commands(site: Site, tmp_path: Path, noise: str) -> None:
    write_bashrc(tmp_path, noise)
    node = site.inventory.nodes[0]

    async def use(connections: Connections) -> None:
        done = await connections.run(node, "cat; echo why >&2; exit 7", stdin="a\nb")
        assert (done.exit_status, done.stdout, done.stderr) == (7, "a\nb", "why\n")
        done = await connections.run_on_bastion("echo one", timeout=30)
        assert (done.stdout, done.stderr) == ("one\n", "")
        assert [line async for line in connections.lines(node, "echo 1; echo 2")] == ["1", "2"]
        async with connections.converse(node, "cat") as talk:
            await talk.write(b"\0binary")
            talk.end_input()
            assert await talk.read(100) == b"\0binary"

    session(site, use)


@pytest.mark.parametrize("noise", NOISE)
def test_files_are_copied_whatever_a_shell_prints(site: Site, tmp_path: Path, noise: str) -> None:
    write_bashrc(tmp_path, noise)
    node = site.inventory.nodes[0]
    (tmp_path / "a").write_text("text")
    there, back = str(tmp_path / "there"), str(tmp_path / "back")
    assert asyncio.run(copy_to(site.inventory, [node], tmp_path / "a", there)) == {0: None}
    assert asyncio.run(copy_from(site.inventory, [node], there, back)) == {0: None}
    assert (tmp_path / "back").read_text() == "text"


def test_a_failed_command_is_not_explained_by_what_the_shell_printed(
    site: Site, tmp_path: Path
) -> None:
    write_bashrc(tmp_path, "echo 'bash: conda: command not found' >&2")
    node = site.inventory.nodes[0]
    where = "node0 (127.0.0.1)"

    async def use(connections: Connections) -> None:
        with pytest.raises(NodeError) as silent:
            async for _ in connections.lines(node, "exit 3"):
                pass
        assert silent.value.message == (
            f"{where}: `exit 3` exited with 3: it said nothing on standard error"
        )
        with pytest.raises(NodeError) as loud:
            async with connections.converse(node, "echo reason >&2; exit 3"):
                pass
        assert loud.value.message.endswith("exited with 3: reason")

    session(site, use)


def test_a_shell_that_ends_in_its_bashrc_has_the_reason(site: Site, tmp_path: Path) -> None:
    write_bashrc(tmp_path, "echo 'Please login as the user ubuntu'; echo why >&2; exit 142")
    node = site.inventory.nodes[0]

    async def use(connections: Connections) -> None:
        done = await connections.run(node, "echo never")
        assert done.exit_status == 142
        assert (done.stdout, done.stderr) == ("Please login as the user ubuntu\n", "why\n")
        with pytest.raises(NodeError, match=r"exited with 142: why"):
            async for _ in connections.lines(node, "echo never"):
                pass

    session(site, use)


def test_a_shell_that_prints_without_end_is_named(site: Site, tmp_path: Path) -> None:
    write_bashrc(tmp_path, f"head -c {MOST_NOISE * 2} /dev/zero")
    (error,) = asyncio.run(
        copy_from(site.inventory, [site.inventory.nodes[0]], "/etc/hostname", str(tmp_path / "x"))
    ).values()
    assert str(error) == (
        "node0 (127.0.0.1): its shell printed more than 1 MiB before the command began; see what"
        " ~/.bashrc and /etc/bash.bashrc do there"
    )
