"""Jobs that end processes by name: they do not reach gpuctl's, and what happens if one does."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.agent.journal.run_folders import mark_used
from engine.agent.node import supervisor_link
from engine.agent.node.supervisor_link import (
    ENDED,
    KILLED,
    NO_WORKER,
    OUT_OF_MEMORY,
    REBOOTED,
    SOCKET,
)
from engine.contract.event import to_line
from engine.contract.head_events import NodeLost
from engine.contract.verdict import Verdict
from engine.contract.worker_events import NoWorker
from tests.engine.conftest import LocalCluster, make_plan, unpacked_agent
from tests.storm.supervise import workers_of

pytestmark = pytest.mark.slow

KILLED_AGENT = (
    "node1: killed by SIGKILL (137): the job killed gpuctl's agent, for example with"
    " pkill, killall or kill -1; the node lives"
)


@pytest.mark.parametrize(
    "search",
    [
        "pgrep -x python3",
        "pgrep python",
        "pgrep -f python",
        "pgrep -f train",
        "pgrep -f job-000001",
        "pgrep -f '(monitor|reporter|default_worker)[.]py'",
    ],
)
def test_a_job_that_ends_processes_by_name_does_not_reach_gpuctls(
    cluster: LocalCluster, search: str
) -> None:
    """What `pkill -9` and `killall` would end, and what `ray stop --force` looks for."""

    async def run() -> set[int]:
        running = asyncio.ensure_future(cluster.supervisor(plan).run())
        await cluster.printed(0, "begun")
        agents = set(await asyncio.to_thread(workers_of, cluster.folder / "node0"))
        (cluster.folder / "go").touch()
        assert (await running).status == "done"
        assert len(agents) == 2, "the worker and its heartbeats"
        return agents

    commands = (
        f"echo begun; until test -e {cluster.folder}/go; do sleep 0.1; done; {search} || true",
    )
    plan = make_plan(nodes=1, name="train", commands=commands)
    agents = asyncio.run(run())
    assert agents & {int(pid) for pid in re.findall(r"\d+", cluster.output(0))} == set()


def test_the_agent_is_listed_by_its_name(tmp_path: Path) -> None:
    agent = str(unpacked_agent())
    folder = tmp_path / "runs" / "train-000001"
    folder.mkdir(parents=True)
    argv = [sys.executable, agent, "hold", str(folder), "healing"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        listed = Path(f"/proc/{process.pid}")
        assert (listed / "comm").read_text() == "gpuctl-agent\n"
        words = (listed / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        assert words == [b"gpuctl-agent", b"hold", str(folder.parent).encode()]


def test_a_job_that_kills_gpuctls_agent_has_failed_on_a_node_that_lives(
    cluster: LocalCluster,
) -> None:
    command = "if [ $DSTACK_NODE_RANK = 1 ]; then kill -9 $PPID; fi; sleep 1000"
    verdict = cluster.execute(make_plan(commands=(command,)))
    assert (verdict.status, verdict.exit_code, verdict.first_failed_rank) == ("failed", 137, 1)
    assert (verdict.reason, verdict.cause) == (KILLED_AGENT, "exit-code")
    assert not [event for event in cluster.events() if isinstance(event, NodeLost)]


def test_a_job_that_kills_gpuctls_agent_is_not_repeated_as_on_a_lost_node(
    cluster: LocalCluster,
) -> None:
    plan = make_plan(
        commands=("if [ $DSTACK_NODE_RANK = 1 ]; then kill -9 $PPID; fi; sleep 1000",),
        retry={"attempts": 3, "on": ("node-lost",)},
    )
    assert cluster.execute(plan).reason == KILLED_AGENT
    assert "attempt_ended" not in [event.kind for event in cluster.events()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_connection_that_is_killed_is_made_again(
    number: signal.Signals, cluster: LocalCluster
) -> None:
    """`pkill ssh` on the head ends the connections to all nodes: the jobs go on.

    ssh ends with 255 after SIGTERM, as after a connection that the network has cut.
    """

    async def run() -> Verdict:
        running = asyncio.ensure_future(cluster.supervisor(plan).run())
        await cluster.printed(1, "runs")
        pid = cluster.launcher.processes[1].pid
        (connection,) = [int(name) for name in (cluster.folder / "connection").read_text().split()]
        assert connection == pid
        os.kill(connection, number)
        (cluster.folder / "go").touch()
        return await running

    class Behind(type(cluster.launcher)):  # type: ignore[misc]
        """Rank 1's worker is behind another process, as behind systemd-run or ssh."""

        async def _spawn(self, command: str, folder: Path) -> asyncio.subprocess.Process:
            if command != "work" or folder.name != "node1":
                return await super()._spawn(command, folder)  # type: ignore[no-any-return]
            script = (
                f"echo $$ > {self._folder}/connection; mkfifo {self._folder}/pipe; exec 3<&0;"
                f" {sys.executable} {self._agent} work {folder} <&3 3<&-"
                f" > {self._folder}/pipe 2> /dev/null & trap 'kill %2; exit 255' TERM;"
                f" cat {self._folder}/pipe & wait %2"
            )
            return await asyncio.create_subprocess_exec(
                *("bash", "-c", script),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )

    cluster.launcher = Behind(cluster.folder, cluster.folder / "agent.pyz")
    wait = f"until test -e {cluster.folder}/go; do sleep 0.1; done"
    plan = make_plan(commands=(f"echo runs; {wait}; sleep 1; echo goes on",))
    verdict = asyncio.run(run())
    assert verdict.status == "done", verdict
    assert cluster.output(1) == "runs\ngoes on\n"


def attach(folder: Path) -> tuple[int, bytes]:
    argv = [sys.executable, str(unpacked_agent()), "attach", str(folder)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode, done.stdout


def test_a_node_without_a_worker_says_why(tmp_path: Path) -> None:
    def answer(why: str) -> tuple[int, bytes]:
        return NO_WORKER, to_line(NoWorker(why)).encode() + b"\n"

    assert attach(tmp_path) == answer(ENDED)
    (tmp_path / SOCKET).touch()
    assert attach(tmp_path) == answer(REBOOTED)
    mark_used(tmp_path)
    assert attach(tmp_path) == answer(KILLED)


def test_an_agent_that_the_kernel_killed_for_memory_is_not_the_jobs_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    line = "Out of memory: Killed process 4711 (gpuctl-agent) total-vm:16384kB"
    monkeypatch.setattr(supervisor_link, "lines_since", lambda _: [line])
    (tmp_path / SOCKET).touch()
    mark_used(tmp_path)
    assert supervisor_link.attach(tmp_path) == NO_WORKER
    assert OUT_OF_MEMORY in capfd.readouterr().out
