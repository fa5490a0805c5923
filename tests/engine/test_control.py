"""A supervisor's socket: what a client's connection sees."""

import asyncio
from pathlib import Path

from engine.agent.control import JOURNAL, SOCKET, serve
from engine.agent.journal import Journal
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
