"""What the head keeps of a lost node: bounded, and never a failure of its own."""

import asyncio
import socket
import time
from pathlib import Path

from engine.agent.node import evidence


def test_a_command_that_hangs_is_cut_off() -> None:
    began = time.monotonic()
    text = asyncio.run(evidence._output_of(("sh", "-c", "echo before; exec sleep 1000"), True, 0.5))
    assert time.monotonic() - began < 20
    assert text.splitlines()[1:] == ["before", "", "(not done within 0.5 s)"]


def test_a_command_that_is_not_installed_says_so() -> None:
    text = asyncio.run(evidence._output_of(("no-such-tool", "-x"), True, 9))
    assert text.startswith("$ no-such-tool -x   # ")
    assert text.endswith("\nno-such-tool is not installed\n")


def test_much_is_cut_to_its_end() -> None:
    text = asyncio.run(evidence._output_of(("seq", "100000"), False, 9))
    assert text.endswith("\n100000\n")
    assert len(text) < 20_000


def test_what_answers_is_seen() -> None:
    texts = asyncio.run(evidence.collect("127.0.0.1"))
    assert "ping 127.0.0.1: answer 3 after " in texts["ping"]
    assert "/proc/loadavg" in texts["load"]
    assert all(texts[source] for source in ("neighbours", "kernel", "sockets", "processes"))


def test_a_port_that_is_closed_or_silent_is_seen() -> None:

    async def connect() -> tuple[str, str, str]:
        def greet(_: asyncio.StreamReader, node: asyncio.StreamWriter) -> None:
            node.write(b"SSH-2.0-x\n")
            node.close()

        greeting = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = greeting.sockets[0].getsockname()[1]
        spoke = await evidence._connect("127.0.0.1", port, 0.5)
        greeting.close()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent_port = silent.getsockname()[1]
            said_nothing = await evidence._connect("127.0.0.1", silent_port, 0.5)
        return spoke, said_nothing, await evidence._connect("127.0.0.1", port, 0.5)

    spoke, said_nothing, closed = asyncio.run(connect())
    assert spoke.endswith("sshd: SSH-2.0-x\n")
    assert said_nothing.endswith("sshd: silent for 0.5 s\n")
    assert "Connect call failed" in closed


def test_a_source_that_fails_or_hangs_says_so() -> None:
    texts = asyncio.run(evidence.collect("no\0address"))
    assert texts["sockets"] == "ValueError: embedded null byte\n"
    assert texts["interfaces"].startswith("$ ip -s address show")
    texts = asyncio.run(evidence.collect("127.0.0.1", limit_s=0))
    assert texts["kernel"] == "not done within 0 s\n"
    assert "/proc/loadavg" in texts["load"]


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "evidence").write_text("a file is in the way")
    evidence.write(tmp_path, "node1", "ping", "text")
    assert (tmp_path / "evidence").read_text() == "a file is in the way"
