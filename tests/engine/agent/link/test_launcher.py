"""How the agent gets onto a node, in a shell as there."""

import subprocess
from pathlib import Path

import pytest

from engine.agent.program import receive_agent
from engine.session.bundle import agent_bundle


def received(folder: Path, data: bytes) -> bytes:
    """What is left on stdin for the worker behind the agent."""
    command = f"umask 022 && {receive_agent(str(folder), data)} && exec cat"
    sent = data + b'{"do": 1}\n'
    done = subprocess.run(["sh", "-c", command], input=sent, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def test_the_agent_is_unpacked_once_and_what_follows_is_the_workers(tmp_path: Path) -> None:
    folder, data = tmp_path / "it's new" / "agent-1", agent_bundle().data
    assert received(folder, data) == b'{"do": 1}\n'
    assert (folder / "engine/agent/node/worker.py").is_file()
    assert [path.name for path in folder.parent.iterdir()] == ["agent-1"]
    (folder / "kept").touch()
    assert received(folder, data) == b'{"do": 1}\n'
    assert (folder / "kept").exists()


def test_an_agent_that_came_with_other_bytes_does_not_run(tmp_path: Path) -> None:
    folder, data = tmp_path / "agent-1", agent_bundle().data
    command = f"{receive_agent(str(folder), data)} && exec cat"
    sent = data[:-1] + bytes([data[-1] ^ 1]) + b'{"do": 1}\n'
    done = subprocess.run(["sh", "-c", command], input=sent, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"the agent has a wrong checksum\n"
    assert list(tmp_path.iterdir()) == []


def test_the_unpacked_agent_runs_and_keeps_itself_compiled(tmp_path: Path) -> None:
    folder = tmp_path / "agent-1"
    received(folder, agent_bundle().data)
    command = [
        "python3",
        "-IS",
        str(folder / "__main__.py"),
        "follow",
        str(tmp_path),
        "0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith('{"kind": "supervisor_lost", ')
    assert list(folder.glob("engine/agent/link/__pycache__/control.*.pyc"))


_EVENTS = {"engine.contract.head_events", "engine.contract.worker_events"}


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("node.worker", {"engine.contract.head_events", "engine.contract.plan"}),
        ("link.control", {*_EVENTS, "engine.contract.plan"}),
        ("head.queue", {*_EVENTS, "engine.contract.plan"}),
        ("head.supervisor_unit", _EVENTS),
    ],
)
def test_a_short_process_imports_little(tmp_path: Path, module: str, heavy: set[str]) -> None:
    """A run of 8 nodes starts 20 processes of the agent at once: their imports are its start."""
    folder = tmp_path / "agent-1"
    received(folder, agent_bundle().data)
    heavy = {"asyncio", "http", "ssl", "argparse", *heavy}
    program = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); import engine.agent.{module};"
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        ["python3", "-IS", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
