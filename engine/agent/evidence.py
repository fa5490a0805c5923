"""What the head sees of a node that was lost, kept while it can still be seen.

Everything is bounded in time and size, and nothing in here fails: a source that cannot be asked
says so in its own file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import struct
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path

from engine.agent.heartbeat import time_of_day

FOLDER = "evidence"
NODES = 8  # so many lost nodes of a run are looked into; more have a cause in common
LIMIT_S = 4.0
_SIZE = 16 * 1024  # characters of one source: its end
_SSH_PORT = 22
_CLOSE_S = 0.5


async def collect(ip: str) -> dict[str, str]:
    """Return what this machine sees of the node at `ip`: a text by the name of its source."""
    commands = {
        "neighbours": ("ip", "-s", "neigh", "show"),
        "sockets": ("ss", "-tinop", "dst", ip),
        "interfaces": ("ip", "-s", "address", "show"),
        "kernel": ("dmesg", "--ctime"),
        "processes": ("ps", "-eo", "pid,ppid,stat,wchan:24,pcpu,rss,etime,args", "--sort=-pcpu"),
    }
    # In this order: what goes by itself, such as a connection, is looked at first.
    sources = {
        name: asyncio.ensure_future(_output_of(argv, name == "processes"))
        for name, argv in commands.items()
    }
    sources["connect"] = asyncio.ensure_future(_connect(ip))
    sources["ping"] = asyncio.ensure_future(asyncio.to_thread(echoes, ip))
    await asyncio.wait(sources.values(), timeout=2 * LIMIT_S)
    texts = {name: _text_of(source) for name, source in sources.items()}
    texts["load"] = load()
    return texts


def _text_of(source: asyncio.Future[str]) -> str:
    """Return what the source showed, or why it showed nothing."""
    if not source.done():
        source.cancel()
        return f"not done within {2 * LIMIT_S:g} s\n"
    error = source.exception()
    return source.result() if error is None else f"{type(error).__name__}: {error}\n"


def write(folder: Path, node: str, source: str, text: str) -> None:
    """Write a source's text to its file; a disk that is full or read-only must not fail the run."""
    with contextlib.suppress(OSError):  # not a run's business
        place = folder / FOLDER / node
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        (place / f"{source}.txt").write_text(text, encoding="utf-8")


def load() -> str:
    """Return this machine's load, and its pressure where the kernel measures it (PSI)."""
    texts = []
    for path in (Path("/proc/loadavg"), *sorted(Path("/proc/pressure").glob("*"))):
        with contextlib.suppress(OSError):  # an older kernel has no PSI
            texts.append(f"{path}\n{path.read_text()}")
    return "\n".join(texts)


def echoes(ip: str) -> str:
    """Return how the node answered three echo requests of ICMP; not every machine has ping(8)."""
    lines = []
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
            lines = [_echo(raw, ip, number) for number in (1, 2, 3)]
    except OSError as error:
        lines.append(str(error))
    return "".join(f"ping {ip}: {line}\n" for line in lines)


def _echo(raw: socket.socket, ip: str, number: int) -> str:
    """Return how one request was answered within a second (RFC 792: type 8, and 0 for answers)."""
    own = struct.pack(">HH", os.getpid() & 0xFFFF, number)
    total = 0x0800 + sum(struct.unpack(">HH", own))
    total = (total >> 16) + (total & 0xFFFF)
    began = time.monotonic()
    raw.sendto(struct.pack(">BBH", 8, 0, ~(total + (total >> 16)) & 0xFFFF) + own, (ip, 0))
    while (left := began + 1 - time.monotonic()) > 0:
        raw.settimeout(left)
        try:
            packet, sender = raw.recvfrom(2048)
        except socket.timeout:  # noqa: UP041  Python 3.9
            break
        answer = packet[(packet[0] & 15) * 4 :]
        if sender[0] == ip and answer[:1] == b"\0" and answer[4:8] == own:
            return f"answer {number} after {(time.monotonic() - began) * 1000:.1f} ms"
    return f"no answer {number} within 1 s"


async def _output_of(argv: tuple[str, ...], from_its_beginning: bool) -> str:
    """Return what the command printed, both streams, behind a line with the command and time."""
    head = f"$ {' '.join(argv)}   # {time_of_day(time.time())}\n"
    if shutil.which(argv[0]) is None:
        return f"{head}{argv[0]} is not installed\n"
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
        )
    except OSError as error:
        return f"{head}{error}\n"
    assert process.stdout is not None
    output, ended = bytearray(), ""
    try:
        await asyncio.wait_for(_read(process.stdout, output), LIMIT_S)
    except asyncio.TimeoutError:  # noqa: UP041  Python before 3.11
        ended = f"\n(not done within {LIMIT_S:g} s)\n"
    finally:  # also where the run ends first, and nobody waits for this any more
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            process.kill()
        with contextlib.suppress(asyncio.TimeoutError):  # what hangs in the kernel may go on
            await asyncio.wait_for(process.wait(), _CLOSE_S)
    text = output.decode("utf-8", "replace")
    return head + (text[:_SIZE] if from_its_beginning else text[-_SIZE:]) + ended


async def _read(stream: asyncio.StreamReader, into: bytearray) -> None:
    while data := await stream.read(65536):
        into += data


async def _connect(ip: str) -> str:
    """Return how a connection to the node's ssh went, and what its sshd said first."""
    began = time.monotonic()
    head = f"connect to {ip} port {_SSH_PORT}: "
    try:
        opening = asyncio.open_connection(ip, _SSH_PORT)
        reader, writer = await asyncio.wait_for(opening, LIMIT_S / 2)
    except asyncio.TimeoutError:  # noqa: UP041
        return f"{head}no answer within {LIMIT_S / 2:g} s\n"
    except OSError as error:
        return f"{head}{error} after {time.monotonic() - began:.3f} s\n"
    text = f"{head}connected after {time.monotonic() - began:.3f} s\n"
    try:
        greeting = await asyncio.wait_for(reader.readline(), LIMIT_S / 2)
        text += f"sshd: {greeting.decode('utf-8', 'replace').strip()}\n"
    except asyncio.TimeoutError:  # noqa: UP041
        text += f"sshd: silent for {LIMIT_S / 2:g} s\n"
    except (OSError, ValueError) as error:
        text += f"sshd: {error}\n"
    writer.close()
    with contextlib.suppress(OSError, asyncio.TimeoutError):  # all was said that is said
        await asyncio.wait_for(writer.wait_closed(), _CLOSE_S)
    return text
