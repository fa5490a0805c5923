"""A supervisor's socket: what a client's connection sees."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from engine.agent.journal.journal import Journal
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.journal.run_folders import READ
from engine.agent.link.control import SOCKET
from engine.agent.link.control_server import serve
from engine.contract.worker_events import NodeReady
from tests.engine.bare_events import STARTED
from tests.engine.conftest import unpacked_agent
from tests.engine.exchange import exchange


def test_a_client_whose_word_has_no_answer_is_not_left_waiting(tmp_path: Path) -> None:
    def fail(argument: str) -> None:
        raise ValueError(argument)

    async def ask(words: str) -> bytes:
        streams = await asyncio.open_unix_connection(tmp_path / SOCKET)
        return await exchange(streams, words.encode() + b"\n")

    async def talk() -> list[bytes]:
        answers = {"healed": fail, "ack": lambda argument: None}
        server = await serve(tmp_path, Journal(tmp_path / JOURNAL), answers)
        heard = [await ask(words) for words in ("ack", "healed nonsense", "unknown", "x" * 70_000)]
        server.close()
        return heard

    assert asyncio.run(talk()) == [b"ok\n", b"", b"", b""]


def start(argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("is_quiet", [True, False])
def test_a_follower_ends_when_its_client_has_vanished(tmp_path: Path, is_quiet: bool) -> None:
    """sshd closes the pipe with the connection; a quiet run writes nothing into it for hours."""

    async def leave() -> int:
        journal = Journal(tmp_path / JOURNAL)
        journal.append(STARTED)
        server = await serve(tmp_path, journal, {})
        argv = [sys.executable, str(unpacked_agent()), "follow", str(tmp_path), "0"]
        with start(argv) as follower:
            assert follower.stdout is not None
            assert follower.stderr is not None
            line = await asyncio.to_thread(follower.stdout.readline)
            assert b'"run_started"' in line
            follower.stdout.close()
            if not is_quiet:
                journal.append(NodeReady(0))
            try:
                status = await asyncio.to_thread(follower.wait, 60)
            finally:
                follower.kill()
            assert follower.stderr.read() == b""
        server.close()
        journal.close()
        return status

    assert asyncio.run(leave()) == 1
    assert not (tmp_path / READ).exists(), "nobody has read the end"
