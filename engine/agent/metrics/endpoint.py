"""The endpoint for Prometheus on the head: http://127.0.0.1:9713/metrics, while a run goes on.

Every supervisor listens on the same port, and the one that the kernel chooses answers for all runs
of the head. A separate process makes the text: the supervisor waits for nothing but pipes.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from engine.agent.journal.run_secrets_file import memory_folder
from engine.agent.metrics.openmetrics import CONTENT_TYPE

PORT = 9713
_LOOPBACK = "127.0.0.1"
_REQUEST_S = 5.0
_ANSWER_S = 20.0
_LARGEST = 16 * 1024  # bytes of a request
_NO_REQUEST = (
    OSError,
    asyncio.TimeoutError,
    asyncio.IncompleteReadError,
    asyncio.LimitOverrunError,  # the request is too long
)


async def open_endpoint(program: Path, port: int = PORT) -> asyncio.AbstractServer | None:
    """Listen on the port of this machine's loopback; None if another program has it.

    `program` is the agent, whose command `metrics` prints the text.
    """
    one_at_a_time = asyncio.Semaphore()

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A client that left, or that sends no request, ends only its connection.
            with contextlib.suppress(*_NO_REQUEST):
                request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_S)
                async with one_at_a_time:
                    answer = await _answer(request, program)
                writer.write(answer)
                await asyncio.wait_for(writer.drain(), _ANSWER_S)
        finally:
            writer.close()  # asyncio does it after an error, but not in Python 3.11.2

    with contextlib.suppress(OSError):  # the run does not need it
        return await asyncio.start_server(attend, _LOOPBACK, port, reuse_port=True, limit=_LARGEST)
    return None


async def _answer(request: bytes, program: Path) -> bytes:
    """Return the whole answer to the request."""
    words = request.split(b"\r\n", 1)[0].split()
    if words[:1] != [b"GET"] or words[1:2] != [b"/metrics"]:
        return _response("404 Not Found", "text/plain", b"only GET /metrics is answered\n")
    maker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-IS",
        str(program),
        "metrics",
        str(memory_folder()),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
    )
    try:
        text, _ = await asyncio.wait_for(maker.communicate(), _ANSWER_S)
    except asyncio.TimeoutError:  # noqa: UP041  Python before 3.11
        text = b""
    finally:  # also if the run ends first and this task is cancelled
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            maker.kill()
        await maker.wait()
    if maker.returncode != 0:
        return _response("500 Internal Server Error", "text/plain", b"no samples can be read\n")
    return _response("200 OK", CONTENT_TYPE, text)


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
