"""The unit of a worker: what systemd is asked for, on the head and on other nodes."""

import asyncio
import os
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from engine.agent.head.supervisor_unit import start_unit
from engine.agent.link.launcher import STOP_GRACE_S, Units
from engine.agent.link.ssh_multiplexing import master_command

ASKED = """\
#!/bin/sh
# In systemd's place: prints what it is asked for, one word a line.
printf '%s\\n' "$@"
"""
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
    for name, text in (("systemd-run", ASKED), ("ssh", HERE)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with ZipFile(tmp_path / "agent-1.pyz", "w") as archive:
        archive.writestr("__main__.py", "an agent")
    agent = tmp_path / "agent-1"
    ips = ("10.0.0.1", "10.0.0.2")
    return Units(tmp_path / "job-000001", agent, ips, ips)


def asked(units: Units, rank: int) -> list[str]:
    async def ask() -> bytes:
        process = await units.open(rank)
        output, _ = await asyncio.wait_for(process.communicate(), 30)
        return output

    return asyncio.run(ask()).decode().splitlines()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_workers_unit(units: Units, rank: int, tmp_path: Path) -> None:
    words = asked(units, rank)
    # RDMA pins memory, and systemd's default is 8 MiB.
    assert "--property=LimitMEMLOCK=infinity" in words
    # What has left its process group goes with the unit, and no later than the grace.
    assert "--property=KillMode=control-group" in words
    assert f"--property=TimeoutStopSec={STOP_GRACE_S}" in words
    # One node's memory is enough to end its job, and not the worker that has to report it.
    assert "--property=OOMPolicy=continue" in words
    assert "--property=TasksMax=infinity" in words
    assert {"--pipe", "--wait", "--collect", f"--unit=gpuctl-run-job-000001-{rank}.service"} <= set(
        words
    )
    path = str(tmp_path / "agent-1" / "__main__.py")
    program = sys.executable if rank == 0 else "python3"
    assert words[-5:] == [program, "-IS", path, "work", str(tmp_path / "job-000001")]


def test_a_shutdown_ends_a_supervisor_before_its_connections_to_other_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd stops what is after a target before it stops what is before it."""
    systemd = tmp_path / "bin"
    systemd.mkdir()
    for name in ("systemctl", "systemd-run"):
        (systemd / name).write_text(
            f"#!/bin/bash\n(echo {name}; printf '%s\\n' \"$@\"; echo) >> {tmp_path}/asked\n"
        )
        (systemd / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{systemd}:{os.environ['PATH']}")

    def asked() -> list[list[str]]:
        calls = (tmp_path / "asked").read_text().split("\n\n")[:-1]
        return [call.split("\n") for call in calls]

    assert start_unit(tmp_path / "job-000001", "/agent/__main__.py", tmp_path / "units") == 0
    reload, words = asked()
    assert reload == ["systemctl", "daemon-reload"]
    assert "--property=After=network.target gpuctl-runs.target" in words
    assert "--property=KillMode=mixed" in words
    _, _, script, *_ = master_command("10.0.0.1", ["true"])
    assert "systemd-run --quiet --scope --collect --property=Before=network.target ssh" in script

    assert start_unit(tmp_path / "job-000002", "/agent/__main__.py", tmp_path / "units") == 0
    assert len(asked()) == 3, "systemd is told once"


def test_a_run_without_the_head_has_its_first_worker_on_another_node(
    units: Units, tmp_path: Path
) -> None:
    others = Units(
        tmp_path / "job-000001", tmp_path / "agent-1", ("10.0.0.2",), ("10.0.0.1", "10.0.0.2")
    )
    assert others.address == "10.0.0.1"
    words = asked(others, 0)
    assert words[-5] == "python3", "over ssh, with that node's Python"
    assert "--unit=gpuctl-run-job-000001-0.service" in words
    assert "--property=CPUWeight=100" in words


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
    assert (tmp_path / "agent-1" / "__main__.py").read_bytes() == b"an agent"
    assert {path.name for path in tmp_path.glob("agent*")} == {"agent-1", "agent-1.pyz"}
