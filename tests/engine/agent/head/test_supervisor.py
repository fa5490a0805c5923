"""Runs of real agents on this machine: order, failure, stopping, what is left."""

import asyncio
import json
import multiprocessing
import os
import signal
import time
from asyncio.subprocess import Process
from multiprocessing.synchronize import Event as MadeEvent
from pathlib import Path

import pytest

from engine.agent.journal.run_folders import USED
from engine.agent.journal.run_secrets_file import boot_id
from engine.agent.link.times import Times
from engine.contract.codec import from_json, to_json
from engine.contract.head_events import NodeLost
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import NodeExited, NodeStopped, Output
from tests.engine.conftest import LocalCluster, LocalLauncher, make_plan, wait_for_agents, when
from tests.processes import is_alive

pytestmark = pytest.mark.slow


def test_all_nodes_run_and_finish(cluster: LocalCluster) -> None:
    plan = make_plan(commands=('echo "rank $DSTACK_NODE_RANK of $DSTACK_NODES_NUM"',))
    verdict = cluster.execute(plan)
    assert (verdict.status, verdict.exit_code) == ("done", 0)
    assert [p.returncode for p in cluster.launcher.processes.values()] == [0, 0]
    assert cluster.output(0) == "rank 0 of 2\n"
    assert cluster.output(1) == "rank 1 of 2\n"
    kinds = cluster.kinds()
    assert kinds[0] == ("run_started", None)
    assert kinds[-1] == ("run_finished", None)
    for rank in (0, 1):
        places = [kinds.index((f"node_{what}", rank)) for what in ("started", "ready", "exited")]
        assert places == sorted(places)


def test_log_file_has_the_output_at_the_events_offsets(cluster: LocalCluster) -> None:
    cluster.execute(make_plan(nodes=1, commands=("echo one; echo two >&2; echo é; printf end",)))
    log = (cluster.folder / "node0" / "rank-0.log").read_bytes()
    events = [event for event in cluster.events() if isinstance(event, Output)]
    lines = [line for event in events for line in event.text.split("\n")]
    assert sorted(lines) == ["end", "one", "two", "é"]
    for event in events:
        text = event.text.encode()
        assert log[event.offset : event.offset + len(text)] == text


def test_environment_arrives_unharmed(cluster: LocalCluster) -> None:
    value = "two words  \"double\" 'single' $HOME `id` \\n\nsecond line\té😀;&|"
    plan = make_plan(nodes=1, env={"ODD": value}, commands=('printf %s "$ODD"',))
    cluster.execute(plan)
    assert cluster.output(0) == value


def test_user_environment_wins_over_the_login_profile(cluster: LocalCluster) -> None:
    plan = make_plan(
        nodes=1, env={"PATH": "/opt/mine/bin:/usr/bin:/bin"}, commands=('echo "$PATH $HOME"',)
    )
    cluster.execute(plan)
    assert cluster.output(0) == f"/opt/mine/bin:/usr/bin:/bin {Path.home()}\n"


def test_signal_is_128_and_more(cluster: LocalCluster) -> None:
    verdict = cluster.execute(make_plan(nodes=1, commands=("kill -SEGV $$",)))
    assert verdict.exit_code == 139
    (exited,) = [e for e in cluster.events() if isinstance(e, NodeExited)]
    assert (exited.exit_code, exited.signal) == (139, signal.SIGSEGV)


def test_failing_entry_ends_the_job_with_its_code(cluster: LocalCluster) -> None:
    plan = make_plan(nodes=1, commands=("false; echo inside goes on", "(exit 5)", "echo never"))
    assert cluster.execute(plan).exit_code == 5
    assert cluster.output(0) == "inside goes on\n"


def test_readiness_is_a_barrier(cluster: LocalCluster, tmp_path: Path) -> None:
    flag, seen = tmp_path / "ready", tmp_path / "seen"
    command = f"""
    if [ $DSTACK_NODE_RANK = 0 ]; then
        sleep 1; echo up; touch {flag}; until test -e {seen}; do sleep 0.1; done
    else echo saw $(ls {flag}); touch {seen}; fi"""
    plan = make_plan(
        startup_order="master-first",
        ready={"command": f"test -e {flag}", "timeout": "20s"},
        commands=(command,),
    )
    assert cluster.execute(plan).status == "done"
    assert cluster.output(1) == f"saw {flag}\n"


def test_not_ready_in_time_fails_the_run(cluster: LocalCluster) -> None:
    plan = make_plan(
        startup_order="workers-first",
        ready={"port": 1, "timeout": "1s"},
        commands=("sleep 1000",),
    )
    verdict = cluster.execute(plan)
    assert (verdict.status, verdict.exit_code) == ("failed", 124)
    assert verdict.reason == "node1 is not ready: port 1 is not listening after 1 s"
    assert ("node_started", 0) not in cluster.kinds()
    stopped = {e.rank: e.reason for e in cluster.events() if isinstance(e, NodeStopped)}
    assert stopped == {0: "never started", 1: ""}


def test_max_duration(cluster: LocalCluster) -> None:
    verdict = cluster.execute(make_plan(max_duration="1s", commands=("sleep 1000",)))
    assert (verdict.status, verdict.exit_code) == ("failed", 124)
    assert verdict.reason == "max_duration of 1 s is over"


def test_job_that_ignores_term_is_killed(cluster: LocalCluster) -> None:
    ready = f"{cluster.folder}/ready"
    stubborn = (
        f"trap '' TERM; while :; do sleep 1; done & echo pid $!; touch {ready}; wait; sleep 99"
    )
    command = f"if [ $DSTACK_NODE_RANK = 0 ]; then {when(ready)}; exit 3; else {stubborn}; fi"
    assert cluster.execute(make_plan(commands=(command,), stop_grace="1s")).exit_code == 3
    assert not is_alive(int(cluster.output(1).split()[1]))


def test_a_job_that_hangs_in_a_stop_signal_can_still_clean_up(cluster: LocalCluster) -> None:
    script = "trap 'echo cleaned; exit 0' TERM; echo hangs; kill -STOP $$; sleep 1000"
    verdict = cluster.execute(make_plan(nodes=1, commands=(script,), no_output_timeout="3s"))
    assert verdict.reason == "no node has printed a line for 3 s (no_output_timeout)"
    assert cluster.output(0) == "hangs\ncleaned\n"


def test_a_stop_does_not_wait_for_what_has_left_the_process_group(cluster: LocalCluster) -> None:
    """It gets no SIGTERM before the unit ends, and it keeps the job's output open."""
    ready = f"{cluster.folder}/ready"
    leaves = f"setsid sh -c 'echo $$; touch {ready}; exec sleep 150' & sleep 1000"
    command = f"if [ $DSTACK_NODE_RANK = 0 ]; then {when(ready)}; else {leaves}; fi"
    plan = make_plan(stop_criteria="master-done", commands=(command,), stop_grace="200s")
    assert cluster.execute(plan).status == "done"
    daemon = int(cluster.output(1))
    assert is_alive(daemon)
    os.kill(daemon, signal.SIGKILL)  # a unit would have


def test_a_worker_that_is_killed_is_no_lost_node(cluster: LocalCluster) -> None:
    async def lose() -> None:
        running = asyncio.ensure_future(cluster.supervisor(plan).run())
        await cluster.printed(1, "runs")
        cluster.launcher.processes[1].kill()
        verdict = await running
        assert (verdict.status, verdict.exit_code, verdict.cause) == ("failed", 137, "exit-code")
        assert verdict.reason == (
            "node1: killed by SIGKILL (137): the job killed gpuctl's agent, for example"
            " with pkill, killall or kill -1; the node lives"
        )

    plan = make_plan(commands=("echo runs; sleep 1000",))
    asyncio.run(lose())
    assert not [e for e in cluster.events() if isinstance(e, NodeLost)]
    assert ("node_stopped", 0) in cluster.kinds()


def test_workers_end_when_the_supervisor_does_not_come_back(cluster: LocalCluster) -> None:
    cluster.times = Times(lost_supervisor_s=1)

    async def abandon() -> list[int]:
        running = asyncio.ensure_future(cluster.supervisor(plan).run())
        await cluster.printed(1, "pid")
        processes = list(cluster.launcher.processes.values())
        for process in processes:  # what the kernel does for a supervisor that was killed
            assert process.stdin is not None
            process.stdin.close()
        await running
        return [await asyncio.wait_for(process.wait(), 60) for process in processes]

    plan = make_plan(commands=("echo pid $$; sleep 1000",))
    assert asyncio.run(abandon()) == [0, 0]
    assert not is_alive(int(cluster.output(1).split()[1]))


def supervise_alone(folder: Path, plan: str, began: MadeEvent) -> None:
    """Run the plan in a process of its own, which a test can let fall silent."""
    began.set()
    times = Times(hung_s=2, head_silence_s=3)
    LocalCluster(folder, times).execute(from_json(LaunchPlan, json.loads(plan)))


def test_nodes_stop_when_the_supervisor_is_silent(cluster: LocalCluster) -> None:
    """It is there, its connections are open, and it says nothing: as behind a network that is cut.

    Every node ends its job by itself.
    """
    plan = make_plan(commands=("echo pid $$; sleep 1000",))
    spawn = multiprocessing.get_context("spawn")
    began = spawn.Event()
    supervisor = spawn.Process(
        target=supervise_alone, args=(cluster.folder, json.dumps(to_json(plan)), began)
    )
    supervisor.start()
    assert supervisor.pid is not None
    try:
        assert began.wait(120)
        for rank in (0, 1):
            asyncio.run(cluster.printed(rank, "\n"))
        os.kill(supervisor.pid, signal.SIGSTOP)
        jobs = [int(cluster.output(rank).split()[1]) for rank in (0, 1)]
        for _ in range(600):
            if not any(map(is_alive, jobs)):
                break
            time.sleep(0.1)
        assert [is_alive(job) for job in jobs] == [False, False]
        assert ("run_finished", None) not in cluster.kinds()
    finally:
        supervisor.kill()
        supervisor.join(60)
        supervisor.close()
    wait_for_agents(cluster.folder)


def test_a_node_that_does_not_stop_is_given_up_and_named(cluster: LocalCluster) -> None:
    cluster.times = Times(stop_s=3)

    async def hang() -> None:
        running = asyncio.ensure_future(cluster.supervisor(plan).run())
        await cluster.printed(0, "runs")
        await cluster.printed(1, "runs")
        cluster.launcher.processes[1].send_signal(signal.SIGSTOP)
        (cluster.folder / "fail").touch()
        verdict = await asyncio.wait_for(running, 60)
        assert (verdict.status, verdict.exit_code) == ("failed", 7)
        # The run ends before its dead worker is waited for, as the head's unit would.
        stuck = cluster.launcher.processes[1]
        assert stuck.stdin is not None
        stuck.stdin.close()
        assert await asyncio.wait_for(stuck.wait(), 60) == -signal.SIGKILL

    fail = f"{when(f'{cluster.folder}/fail')}; exit 7"
    commands = (f"echo runs; [ $DSTACK_NODE_RANK = 1 ] || {{ {fail}; }}; sleep 99",)
    plan = make_plan(commands=commands, stop_grace="1s")
    asyncio.run(hang())
    lost = [(e.rank, e.reason) for e in cluster.events() if isinstance(e, NodeLost)]
    assert lost == [(1, "did not stop within 5 s")]
    assert not [e for e in cluster.events() if isinstance(e, NodeStopped) and e.rank == 1]


def test_binary_output_and_partial_lines(cluster: LocalCluster) -> None:
    seen = cluster.folder / "seen"
    commands = (
        "printf 'a\\377b\\n'",
        f"printf 'no end'; {when(str(seen))}; printf ' yet\\n'",
        "head -c 100000 /dev/zero | tr '\\0' x",
    )
    cluster.execute_until(make_plan(nodes=1, commands=commands), "no end", seen)
    assert cluster.output(0) == "a\ufffdb\nno end yet\n" + "x" * 100_000
    pieces = [e.text for e in cluster.events() if isinstance(e, Output)]
    assert "no end" in pieces


def test_script_and_environment_leave_no_file(cluster: LocalCluster) -> None:
    pipe = f"mkfifo {cluster.folder}/node0/failed"
    plan = make_plan(nodes=1, env={"TOKEN": "geheim"}, commands=(pipe,))
    cluster.execute(plan)
    assert sorted(path.name for path in (cluster.folder / "node0").iterdir()) == [
        "hostfile",
        "rank-0.log",
        f"{USED}{boot_id()}",
    ]
    everything = b"".join(p.read_bytes() for p in cluster.folder.rglob("*") if p.is_file())
    assert b"geheim" not in everything
    assert b"geheim" not in os.environb.values()


@pytest.mark.parametrize(("on_stop", "off"), [("destroy", True), ("keep", False)])
def test_unattended_destroy(cluster: LocalCluster, on_stop: str, off: bool) -> None:
    cluster.times = Times(acknowledge_s=0.1)

    async def end() -> None:
        supervisor = cluster.supervisor(make_plan(nodes=1, on_stop=on_stop))
        await supervisor.run()
        await supervisor.power_off_unattended()

    asyncio.run(end())
    assert cluster.launcher.powered_off is off


def test_a_client_that_destroys_has_time_as_long_as_it_says_that_it_is_at_it(
    cluster: LocalCluster,
) -> None:
    cluster.times = Times(acknowledge_s=0.2, lease_s=1.5)

    async def end() -> None:
        supervisor = cluster.supervisor(make_plan(nodes=1, on_stop="destroy"))
        await supervisor.run()
        ending = asyncio.ensure_future(supervisor.power_off_unattended())
        for _ in range(3):
            supervisor.acknowledge()
            await asyncio.sleep(0.5)
        assert not cluster.launcher.powered_off
        await ending

    asyncio.run(end())
    assert cluster.launcher.powered_off


def test_a_flaw_in_attending_to_a_node_ends_the_run_and_is_told(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    class Flawed(LocalLauncher):
        async def open(self, rank: int) -> Process:
            if rank == 1:
                raise RuntimeError("a flaw")
            return await super().open(rank)

    cluster.launcher = Flawed(cluster.folder, cluster.folder / "agent.pyz")
    verdict = cluster.execute(make_plan(commands=("sleep 1000",)))
    assert verdict.reason == "node1 was lost: gpuctl failed (RuntimeError: a flaw)"
    assert (verdict.exit_code, verdict.first_failed_rank) == (125, 1)
    assert "RuntimeError: a flaw" in capfd.readouterr().err
