"""The unit of a worker: where it starts, and what starts it."""

import asyncio
import os
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from engine.agent.link.launcher import Units

AGENT = "import sys\nfor word in sys.argv: print(word)\n"
HERE = """\
#!/bin/sh
# In ssh's place: the other node is this machine.
for last; do :; done
exec sh -c "$last"
"""


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Units:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(HERE)
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path / "memory"))
    agent = tmp_path / "agent-1"
    with ZipFile(tmp_path / "agent-1.pyz", "w") as archive:
        archive.writestr("__main__.py", AGENT)
    ips = ("10.0.0.1", "10.0.0.2")
    return Units(tmp_path / "job-000001", agent, ips, ips)


def asked(units: Units, rank: int) -> list[str]:
    async def ask() -> bytes:
        process = await units.open(rank)
        output, _ = await asyncio.wait_for(process.communicate(), 30)
        return output

    return asyncio.run(ask()).decode().splitlines()


def test_a_worker_on_the_head_has_its_python(units: Units, tmp_path: Path) -> None:
    (tmp_path / "agent-1").mkdir()
    (tmp_path / "agent-1" / "__main__.py").write_text(AGENT)
    program, command, name, *words = asked(units, 0)
    assert (command, name) == ("unit", "gpuctl-run-job-000001-0.service")
    assert words == [sys.executable, "-IS", program, "work", str(tmp_path / "job-000001")]


def test_a_run_without_the_head_has_its_first_worker_on_another_node(
    units: Units, tmp_path: Path
) -> None:
    others = Units(
        tmp_path / "job-000001", tmp_path / "agent-1", ("10.0.0.2",), ("10.0.0.1", "10.0.0.2")
    )
    assert others.address == "10.0.0.1"
    words = asked(others, 0)
    assert words[1] == '{"kind": "reached"}', "over ssh, behind what a login may print"
    assert words[4] == "gpuctl-run-job-000001-0.service"
    assert words[5] == "python3", "that node's"


@pytest.mark.parametrize(("ips", "node"), [(("10.0.0.2",), "10.0.0.2"), (("10.0.0.1",), "here")])
def test_a_worker_is_taken_up_on_its_node(
    ips: tuple[str, ...], node: str, units: Units, tmp_path: Path
) -> None:
    """Rank 0 may be on another node than the head."""
    (tmp_path / "bin" / "ssh").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    others = Units(tmp_path / "job-000001", tmp_path / "agent-1", ips, ("10.0.0.1", "10.0.0.2"))

    async def take_up() -> bytes:
        process = await others.attach(0)
        output, _ = await asyncio.wait_for(process.communicate(), 30)
        return output

    words = asyncio.run(take_up()).decode().splitlines()
    assert words[-2:-1] == ([] if node == "here" else [f"root@{node}"])


def test_the_agent_travels_to_other_nodes(units: Units, tmp_path: Path) -> None:
    asked(units, 1)
    assert (tmp_path / "agent-1" / "__main__.py").read_text() == AGENT
    assert {path.name for path in tmp_path.glob("agent*")} == {"agent-1", "agent-1.pyz"}
