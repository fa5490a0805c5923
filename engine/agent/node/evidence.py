"""Evidence about a lost node, collected on the head right after the loss.

All of it is limited in time and size, and no error leaves this module: the file of a source that
failed has the reason.
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
from collections.abc import Iterator
from pathlib import Path

from engine.agent.journal.clock import time_of_day
from engine.agent.journal.redaction import Redaction
from engine.contract.head_events import Evidence
from engine.contract.node_plan import NodePlan

FOLDER = "evidence"
NODES = 8  # lost nodes of a run to examine; more losses usually have a common cause
RANKS = "ranks"
"""The source of evidence about a job that hangs: stacks and states of its ranks."""
HANGS = 2  # silences of an attempt of which it is kept; a job that is often silent is not ill
HANG_NODES = 32  # of which it is kept
_SIZE = 16 * 1024  # characters to keep of one source
_CLOSE_S = 2.0  # a killed process or a closed connection ends in milliseconds, unless it hangs
_PINGS = (1, 2, 3)
_PING_S = 1.0


async def collect(ip: str, port: int = 22, limit_s: float = 4.0) -> dict[str, str]:
    """Return evidence about the node at `ip`: texts by the name of their source.

    A command may take `limit_s`, and a connection to sshd at `port`; all of it 2 * `limit_s`.
    """
    commands = {
        "neighbours": ("ip", "-s", "neigh", "show"),
        "sockets": ("ss", "-tinop", "dst", ip),
        "interfaces": ("ip", "-s", "address", "show"),
        "kernel": ("dmesg", "--ctime"),
        "processes": ("ps", "-eo", "pid,ppid,stat,wchan:24,pcpu,rss,etime,args", "--sort=-pcpu"),
    }
    # In this order: first the sources that change soon, such as connections.
    sources = {
        name: asyncio.ensure_future(_output_of(argv, name == "processes", limit_s))
        for name, argv in commands.items()
    }
    sources["connect"] = asyncio.ensure_future(_connect(ip, port, limit_s / 2))
    sources["ping"] = asyncio.ensure_future(asyncio.to_thread(ping, ip))
    try:
        await asyncio.wait(sources.values(), timeout=2 * limit_s)
    finally:  # also if the run ends first
        for source in sources.values():
            source.cancel()
        # Their processes are killed and reaped before the event loop may end.
        await asyncio.wait(sources.values(), timeout=_CLOSE_S)
    texts = {name: _text_of(source, 2 * limit_s) for name, source in sources.items()}
    texts["load"] = load()
    return texts


def _text_of(source: asyncio.Future[str], limit_s: float) -> str:
    """Return the text of the source, or why there is none."""
    if source.cancelled() or not source.done():
        return f"not done within {limit_s:g} s\n"
    error = source.exception()
    return source.result() if error is None else f"{type(error).__name__}: {error}\n"


def write(folder: Path, node: str, source: str, text: str) -> None:
    """Write a source's text to its file; a disk that is full or read-only must not fail the run."""
    with contextlib.suppress(OSError):  # see above
        place = folder / FOLDER / node
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        (place / f"{source}.txt").write_text(text, encoding="utf-8")


def keep(
    folder: Path, node: NodePlan, texts: dict[str, str], secrets: list[str]
) -> Iterator[Evidence]:
    """Write the texts, by source, to the run's folder, without the secrets; yield their events."""
    for source, seen in sorted(texts.items()):
        redaction = Redaction(secrets)  # `ps` prints the arguments of the job's processes
        text = redaction.feed(seen) + redaction.rest()
        write(folder, node.name, source, text)
        yield Evidence(node.rank, node.name, source, text)


def load() -> str:
    """Return this machine's load, and its pressure if the kernel measures it (PSI)."""
    texts = []
    for path in (Path("/proc/loadavg"), *sorted(Path("/proc/pressure").glob("*"))):
        with contextlib.suppress(OSError):  # an older kernel has no PSI
            texts.append(f"{path}\n{path.read_text()}")
    return "\n".join(texts)


def ping(ip: str) -> str:
    """Return the answers within a second to three ICMP echo requests, sent at once.

    Some machines have no program for that.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
            answers = _echoes(raw, ip)
    except OSError as error:
        return f"ping {ip}: {error}\n"
    lines = (
        f"answer {number} after {answers[number] * 1000:.1f} ms"
        if number in answers
        else f"no answer {number} within {_PING_S:g} s"
        for number in _PINGS
    )
    return "".join(f"ping {ip}: {line}\n" for line in lines)


def _echoes(raw: socket.socket, ip: str) -> dict[int, float]:
    """Send the requests; return seconds by number (RFC 792: type 8, answers have type 0)."""
    numbers = {struct.pack(">HH", os.getpid() & 0xFFFF, number): number for number in _PINGS}
    began = time.monotonic()
    for own in numbers:
        total = 0x0800 + sum(struct.unpack(">HH", own))
        total = (total >> 16) + (total & 0xFFFF)
        raw.sendto(struct.pack(">BBH", 8, 0, ~(total + (total >> 16)) & 0xFFFF) + own, (ip, 0))
    answers: dict[int, float] = {}
    while len(answers) < len(numbers) and (left := began + _PING_S - time.monotonic()) > 0:
        raw.settimeout(left)
        try:
            packet, sender = raw.recvfrom(2048)
        except socket.timeout:  # noqa: UP041  Python 3.9
            break
        answer = packet[(packet[0] & 15) * 4 :]
        if sender[0] == ip and answer[:1] == b"\0" and answer[4:8] in numbers:
            answers.setdefault(numbers[answer[4:8]], time.monotonic() - began)
    return answers


async def _output_of(argv: tuple[str, ...], from_its_beginning: bool, limit_s: float) -> str:
    """Return a line with command and time, then the command's output of both streams."""
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
        await asyncio.wait_for(_read(process.stdout, output), limit_s)
    except asyncio.TimeoutError:  # noqa: UP041  Python before 3.11
        ended = f"\n(not done within {limit_s:g} s)\n"
    finally:  # also if the run ends first and this task is cancelled
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            process.kill()
        with contextlib.suppress(
            asyncio.TimeoutError
        ):  # a process that hangs in the kernel may stay
            await asyncio.wait_for(process.wait(), _CLOSE_S)
    text = output.decode("utf-8", "replace")
    return head + (text[:_SIZE] if from_its_beginning else text[-_SIZE:]) + ended


async def _read(stream: asyncio.StreamReader, into: bytearray) -> None:
    while data := await stream.read(65536):
        into += data


async def _connect(ip: str, port: int, limit_s: float) -> str:
    """Return the outcome of a connection to the node's ssh port, with sshd's greeting."""
    began = time.monotonic()
    head = f"connect to {ip} port {port}: "
    try:
        opening = asyncio.open_connection(ip, port)
        reader, writer = await asyncio.wait_for(opening, limit_s)
    except asyncio.TimeoutError:  # noqa: UP041
        return f"{head}no answer within {limit_s:g} s\n"
    except OSError as error:
        return f"{head}{error} after {time.monotonic() - began:.3f} s\n"
    text = f"{head}connected after {time.monotonic() - began:.3f} s\n"
    try:
        greeting = await asyncio.wait_for(reader.readline(), limit_s)
        text += f"sshd: {greeting.decode('utf-8', 'replace').strip()}\n"
    except asyncio.TimeoutError:  # noqa: UP041
        text += f"sshd: silent for {limit_s:g} s\n"
    except (OSError, ValueError) as error:
        text += f"sshd: {error}\n"
    writer.close()
    with contextlib.suppress(OSError, asyncio.TimeoutError):  # the text is complete
        await asyncio.wait_for(writer.wait_closed(), _CLOSE_S)
    return text
