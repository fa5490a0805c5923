"""Copy files and folders between this machine and nodes, as `cp -r` does, by tar over ssh.

tar is a part of every image, and of every machine that gpuctl runs on. What arrives is unpacked
aside, and gets its name when it is whole.
"""

import asyncio
import contextlib
import shlex
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from config.errors import GpuctlError, InputError, NodeError
from nodes.answers import CommandFailed
from nodes.conversation import Conversation
from nodes.fanout import on_each
from nodes.inventory import Inventory, Node
from nodes.ssh import Connections, connect

_PIECE = 1 << 18
_AT_ONCE = 8

# $1 is the source. A trailing slash and `.` have no name.
_PACK = """\
[ -e "$1" ] || [ -L "$1" ] || { echo "$1 does not exist" >&2; exit 1; }
set -- "$(realpath -s -- "$1")" || exit
exec tar -C "$(dirname -- "$1")" -cf - -- "$(basename -- "$1")"
"""
# $1 is the target, $2 is 1 if it must be a folder.
_UNPACK = """\
above=$(dirname -- "$1")
mkdir -p -- "$above" && part=$(mktemp -d -- "$above/.gpuctl-cp.XXXXXX") || exit
trap 'rm -rf -- "$part"' EXIT
tar -C "$part" -xf - --no-same-owner --no-same-permissions || exit
if [ "$2" = 1 ]; then mkdir -p -- "$1" || exit; fi
name=$(ls -A -- "$part")
if [ -d "$1" ]; then to=$1/$name; else to=$1; fi
if [ -d "$part/$name" ] && [ -d "$to" ]; then
  cp -a -- "$part/$name/." "$to"
else
  mv -fT -- "$part/$name" "$to"
fi
"""


async def copy_to(
    inventory: Inventory, nodes: Sequence[Node], source: Path, target: str
) -> dict[int, GpuctlError | None]:
    """Copy the file or folder to the path `target` of all nodes; return one entry per rank."""
    command = _script(_UNPACK, target or ".", "1" if target.endswith("/") else "0")
    async with connect(inventory) as connections:

        async def send(node: Node) -> None:
            async with _converse(connections, node, command) as talk:
                await _pack(source, talk)

        return await on_each(nodes, send, _AT_ONCE)


async def copy_from(
    inventory: Inventory, nodes: Sequence[Node], source: str, target: str
) -> dict[int, GpuctlError | None]:
    """Copy the path `source` of each node to `target`; of several nodes to `target/NAME` each."""
    command = _script(_PACK, source or ".")
    async with connect(inventory) as connections:

        async def fetch(node: Node) -> None:
            to = f"{target}/{node.name}/" if len(nodes) > 1 else target
            await _fetch(connections, node, command, to)

        return await on_each(nodes, fetch, _AT_ONCE)


async def _fetch(connections: Connections, node: Node, command: str, target: str) -> None:
    unpack = await asyncio.create_subprocess_exec(
        *("bash", "-c", _UNPACK, "bash", target, "1" if target.endswith("/") else "0"),
        stdin=PIPE,
        stdout=DEVNULL,
        stderr=PIPE,
    )
    assert unpack.stdin is not None
    try:
        async with _converse(connections, node, command) as talk:
            while data := await talk.read(_PIECE):
                with contextlib.suppress(ConnectionError):  # its end has the reason
                    unpack.stdin.write(data)
                    await unpack.stdin.drain()
    except GpuctlError:
        with contextlib.suppress(ProcessLookupError):  # it has ended, as the stream had no archive
            unpack.terminate()
        unpack.stdin.close()
        await unpack.communicate()
        raise
    unpack.stdin.close()  # `communicate` leaves it open
    _, complaint = await unpack.communicate()
    if unpack.returncode != 0:
        raise NodeError(f"{target} cannot be written: {_last(complaint)}", "")


@contextlib.asynccontextmanager
async def _converse(
    connections: Connections, node: Node, command: str
) -> AsyncIterator[Conversation]:
    """Converse with the command; its error has the reason, and not the script."""
    try:
        async with connections.converse(node, command) as talk:
            yield talk
    except CommandFailed as error:
        raise NodeError(f"{node.name} ({node.address}): {error.reason}", error.hint) from error


async def _pack(source: Path, talk: Conversation) -> None:
    pack = await asyncio.create_subprocess_exec(
        *("bash", "-c", _PACK, "bash", str(source)), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    assert pack.stdout is not None
    assert pack.stderr is not None
    while data := await pack.stdout.read(_PIECE):
        await talk.write(data)
    complaint = await pack.stderr.read()
    if await pack.wait() != 0:
        raise InputError(f"{source} cannot be read: {_last(complaint)}", "make it readable")


def _script(text: str, *words: str) -> str:
    return shlex.join(["bash", "-c", text, "bash", *words])


def _last(complaint: bytes) -> str:
    lines = complaint.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no reason given"
