"""Copy files and folders between this machine and nodes, as `cp -r` does, by tar over ssh.

tar is a part of every image, and of every machine that gpuctl runs on. What arrives is unpacked
aside, and gets its name when it is whole. What arrives here is read as arrivals.py says.
"""

import asyncio
import contextlib
import shlex
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from pathlib import Path, PurePosixPath

from config.errors import GpuctlError, InputError, NodeError
from nodes.answers import CommandFailed
from nodes.arrivals import Arrivals, refusal, unpack
from nodes.conversation import Conversation
from nodes.fanout import on_each
from nodes.inventory import Inventory, Node
from nodes.kept_connections import KeptConnections, connect

_PIECE = 1 << 18
_AT_ONCE = 8

# $1 is the source. A trailing slash and `.` have no name. A link is sent as what it leads to.
_PACK = """\
[ -e "$1" ] || { echo "$1 does not exist" >&2; exit 1; }
set -- "$(realpath -- "$1")" || exit
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
    async with connect(inventory) as connections:

        async def fetch(node: Node) -> None:
            to = f"{target}/{node.name}/" if len(nodes) > 1 else target
            await _fetch(connections, node, source, to)

        return await on_each(nodes, fetch, _AT_ONCE)


async def _fetch(connections: KeptConnections, node: Node, source: str, target: str) -> None:
    above = Path(target).parent
    try:
        above.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=".gpuctl-cp.", dir=above))
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        arrivals = Arrivals(part / "copy")
        async with _converse(connections, node, _script(_PACK, source or ".")) as talk:
            stream = _Stream(talk, asyncio.get_running_loop())
            is_whole = await asyncio.to_thread(unpack, stream, arrivals, node.name)
        if not is_whole:  # and it has not said why
            raise NodeError(f"{node.name} sent nothing", "")
        await asyncio.to_thread(_place, part / "copy", target, PurePosixPath(source).name)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)  # what stays only takes space
    if arrivals.refused:
        raise refusal(node.name, arrivals.refused)


class _Stream:
    """What a command prints, for a thread that reads it."""

    def __init__(self, talk: Conversation, loop: asyncio.AbstractEventLoop) -> None:
        self._talk, self._loop = talk, loop

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end."""
        return asyncio.run_coroutine_threadsafe(self._talk.read(size), self._loop).result()


def _place(copy: Path, target: str, name: str) -> None:
    """Give the copy its name, as `cp -r` does; `name` is its own, empty for `.` and `/`."""
    to = Path(target)
    if target.endswith("/"):
        to.mkdir(parents=True, exist_ok=True)
    if to.is_dir():
        to /= "" if name in (".", "..") else name
    if copy.is_dir() and to.is_dir():
        _merge(copy, to)
    else:
        copy.replace(to)


def _merge(folder: Path, to: Path) -> None:
    """Move what is in a folder into another; through no link below it."""
    for entry in folder.iterdir():
        place = to / entry.name
        if all(path.is_dir() and not path.is_symlink() for path in (entry, place)):
            _merge(entry, place)
        else:
            entry.replace(place)


def _unwritable(target: str, error: OSError) -> NodeError:
    return NodeError(f"{target} cannot be written: {error.strerror or error}", "name another path")


@contextlib.asynccontextmanager
async def _converse(
    connections: KeptConnections, node: Node, command: str
) -> AsyncIterator[Conversation]:
    """Converse with the command; its error has the reason, and not the script."""
    try:
        async with connections.converse(node, command) as talk:
            yield talk
    except CommandFailed as error:
        raise NodeError(f"{node.name} ({node.address}): {error.reason}", error.hint) from error


async def _pack(source: Path, talk: Conversation) -> None:
    pack = await asyncio.create_subprocess_exec(
        "bash", "-c", _PACK, "bash", str(source), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
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
