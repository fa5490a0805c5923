"""Attempts of runs of real agents on this machine."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.agent.head import retry_loop
from engine.agent.head.run_state import RunState, journal_events
from engine.agent.head.supervisor import Supervisor
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.link.times import Times
from engine.contract.event import to_line
from engine.contract.head_events import (
    AttemptEnded,
    AttemptStarted,
    NodesLeftOut,
    RunFinished,
    RunStarted,
    WaitingForNodes,
)
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import Verdict
from engine.contract.worker_events import NodeInterrupted, NodeReady
from engine.record.result import ResultCollector
from tests.engine.agent.head.test_malformed_events import LinesFirst
from tests.engine.agent.head.test_resuming import Supervised
from tests.engine.conftest import LocalCluster, make_plan, when

pytestmark = pytest.mark.slow

COUNT = "echo attempt $GPUCTL_RESTART_COUNT; "


def finished(cluster: LocalCluster) -> RunFinished:
    last = cluster.events()[-1]
    assert isinstance(last, RunFinished)
    return last


def retried(**fields: Any) -> dict[str, Any]:
    return {"retry": {"backoff": "1s", **fields}}


def planned(**fields: Any) -> LaunchPlan:
    """The plan of a run that does not pause between attempts."""
    plan = make_plan(**fields)
    return replace(plan, retry=plan.retry and replace(plan.retry, backoff_s=0))


@pytest.fixture(autouse=True)
def short_times(cluster: LocalCluster) -> None:
    """Look every moment."""
    cluster.times = Times(look_s=0.05, acknowledge_s=0.1)


def test_a_failed_job_starts_again_with_its_checkpoints(cluster: LocalCluster) -> None:
    command = (
        COUNT + 'cd "$GPUCTL_CHECKPOINT_DIR"; echo x >> steps; wc -l < steps;'
        " test $GPUCTL_RESTART_COUNT = 2 || { test $GPUCTL_NODE_RANK = 0 || exit 7; sleep 1000; }"
    )
    verdict = cluster.execute(planned(commands=(command,), **retried()))
    assert (verdict.status, verdict.exit_code) == ("done", 0)
    assert cluster.output(1) == "attempt 0\n1\nattempt 1\n2\nattempt 2\n3\n"
    ends = [event for event in cluster.events() if isinstance(event, AttemptEnded)]
    assert [(one.number, one.attempts, one.reason) for one in ends] == [
        (1, 3, "node1: exited with 7"),
        (2, 3, "node1: exited with 7"),
    ]
    begun = [one.number for one in cluster.events() if isinstance(one, AttemptStarted)]
    assert begun == [2, 3]
    assert [kind for kind, _ in cluster.kinds()].count("run_started") == 1
    collector = ResultCollector()
    for event in cluster.events():
        collector.see(event)
    result = collector.result()
    assert result is not None
    assert (result.status, result.attempts) == ("done", 3)


def test_after_the_last_attempt_the_run_has_failed(cluster: LocalCluster) -> None:
    plan = planned(nodes=1, commands=(COUNT + "exit 4",), **retried(attempts=2))
    verdict = cluster.execute(plan)
    assert (verdict.status, verdict.exit_code) == ("failed", 4)
    assert cluster.output(0) == "attempt 0\nattempt 1\n"
    assert finished(cluster).reason == "node0: exited with 4 (attempt 2)"


def test_the_working_folder_is_kept(cluster: LocalCluster) -> None:
    command = "echo x >> seen; wc -l < seen; test $GPUCTL_RESTART_COUNT = 1"
    plan = planned(nodes=1, commands=(command,), outputs=("seen",), **retried())
    assert cluster.execute(plan).status == "done"
    assert cluster.output(0) == "1\n2\n"


def test_a_job_that_does_not_become_ready_fails(cluster: LocalCluster) -> None:
    plan = planned(
        commands=("sleep 1000",),
        startup_order="master-first",
        ready={"command": "false"},
        startup_timeout="1s",
    )
    verdict = cluster.execute(plan)
    assert (verdict.status, verdict.exit_code, verdict.cause) == ("failed", 124, "startup")
    assert verdict.reason == "node0 is not ready 1 s after the start (startup_timeout)"


WAITS = COUNT + "test $GPUCTL_RESTART_COUNT != 0 || sleep 1000"


async def lose(cluster: LocalCluster, rank: int) -> None:
    for started in (0, 1):
        await cluster.printed(started, "attempt 0")
    cluster.launcher.lose(rank)


async def seen(cluster: LocalCluster, kind: str) -> None:
    for _ in range(400):
        if kind in [known for known, _ in cluster.kinds()]:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"there is no event {kind}")


def test_a_lost_node_is_waited_for_until_it_is_back(cluster: LocalCluster) -> None:
    async def scenario() -> Verdict:
        running = asyncio.ensure_future(
            cluster.supervisor(planned(commands=(WAITS,), **retried())).run()
        )
        await lose(cluster, 1)
        await seen(cluster, "waiting_for_nodes")
        cluster.launcher.back.add(1)
        return await running

    assert asyncio.run(scenario()).status == "done"
    (waited,) = [event for event in cluster.events() if isinstance(event, WaitingForNodes)]
    assert (waited.nodes, waited.seconds) == (("node1",), 3600)
    assert cluster.output(1) == "attempt 0\nattempt 1\n"


def test_a_node_that_was_made_again_has_its_new_address(cluster: LocalCluster) -> None:
    command = WAITS + '; echo "$GPUCTL_NODES_IPS"'
    supervisor = cluster.supervisor(planned(commands=(command,), **retried()))

    async def scenario() -> Verdict:
        running = asyncio.ensure_future(supervisor.run())
        await lose(cluster, 1)
        await seen(cluster, "waiting_for_nodes")
        server = await cluster.serve(supervisor)
        reader, writer = await asyncio.open_unix_connection(str(cluster.socket))
        writer.write(b'healed {"node1": "10.213.1.99"}\n')
        assert await reader.readline() == b"ok\n"
        writer.close()
        server.close()
        return await running

    assert asyncio.run(scenario()).status == "done"
    assert cluster.output(0) == "attempt 0\nattempt 1\n10.213.1.10\n10.213.1.99\n"
    addresses = ("10.213.1.10", "10.213.1.99")
    assert cluster.launcher.addresses == (addresses, addresses)


def test_a_node_that_was_made_again_while_the_run_waited_in_the_queue(
    cluster: LocalCluster,
) -> None:
    supervisor = cluster.supervisor(planned(commands=('echo "$GPUCTL_NODES_IPS"',)))
    supervisor.heal('{"node1": "10.213.1.99"}')
    assert asyncio.run(supervisor.run()).status == "done"
    assert cluster.output(1) == "10.213.1.10\n10.213.1.99\n"
    (began,) = [event for event in cluster.events() if isinstance(event, RunStarted)]
    assert [node.private_ip for node in began.nodes] == ["10.213.1.10", "10.213.1.99"]
    known = recorded(cluster, planned())
    assert known.plan.nodes[1].private_ip == "10.213.1.99"


def test_a_node_that_does_not_come_back_fails_the_run(cluster: LocalCluster) -> None:
    async def scenario() -> Verdict:
        plan = planned(commands=(WAITS,), **retried(node_wait="1s"))
        running = asyncio.ensure_future(cluster.supervisor(plan).run())
        await lose(cluster, 1)
        return await running

    verdict = asyncio.run(scenario())
    assert (verdict.status, verdict.exit_code, verdict.first_failed_rank) == ("failed", 125, 1)
    assert verdict.reason.endswith("; node1 did not come back within 1 s")


def test_a_node_that_aws_takes_back_does_not_count_as_back(cluster: LocalCluster) -> None:
    """It still answers until AWS takes it."""
    notice = to_line(NodeInterrupted(1, "terminate", "2026-11-20T22:31:05Z", time=1.0))
    cluster.launcher = LinesFirst(cluster.folder, [notice])
    cluster.launcher.back.add(1)

    async def scenario() -> Verdict:
        plan = planned(commands=(WAITS,), **retried(node_wait="1s"))
        running = asyncio.ensure_future(cluster.supervisor(plan).run())
        await lose(cluster, 1)
        return await running

    assert asyncio.run(scenario()).reason == (
        "node1 was lost: AWS took its spot instance back (terminate at 2026-11-20T22:31:05Z);"
        " node1 did not come back within 1 s"
    )


def test_a_run_goes_on_with_the_nodes_that_are_left_until_they_are_more(
    cluster: LocalCluster,
) -> None:
    command = f"""
    echo attempt $GPUCTL_RESTART_COUNT
    echo "$GPUCTL_NODE_NAME is $GPUCTL_NODE_RANK of $GPUCTL_NODES_NUM:" $GPUCTL_NODES_IPS
    case $GPUCTL_RESTART_COUNT in
      0) sleep 1000;; 1) until test -e {cluster.folder}/healed; do sleep 0.1; done; exit 5;;
    esac"""
    plan = planned(
        nodes={"min": 2, "max": 3}, commands=(command,), **retried(node_wait="1s", attempts=3)
    )
    supervisor = cluster.supervisor(plan)

    async def scenario() -> Verdict:
        running = asyncio.ensure_future(supervisor.run())
        await cluster.printed(2, "of 3")
        await lose(cluster, 1)
        await cluster.printed(1, "of 2")
        supervisor.heal('{"node1": "10.213.1.99"}')
        (cluster.folder / "healed").touch()
        return await running

    assert asyncio.run(scenario()).status == "done"
    kinds = [kind for kind, _ in cluster.kinds()]
    assert [kinds.count(one) for one in ("waiting_for_nodes", "nodes_left_out")] == [1, 1]
    (left_out,) = [event for event in cluster.events() if isinstance(event, NodesLeftOut)]
    assert (left_out.nodes, left_out.left) == (("node1",), 2)
    started = [event for event in cluster.events() if isinstance(event, AttemptStarted)]
    names = [[node.name for node in event.nodes] for event in started]
    assert names == [["node0", "node2"], ["node0", "node1", "node2"]]
    before, after = "10.213.1.10 10.213.1.11 10.213.1.12", "10.213.1.10 10.213.1.99 10.213.1.12"
    assert cluster.output(0).splitlines()[1::2] == [
        f"node0 is 0 of 3: {before}",
        "node0 is 0 of 2: 10.213.1.10 10.213.1.12",
        f"node0 is 0 of 3: {after}",
    ]
    assert cluster.output(1).splitlines()[1::2] == [
        f"node1 is 1 of 3: {before}",
        "node2 is 1 of 2: 10.213.1.10 10.213.1.12",
        f"node1 is 1 of 3: {after}",
    ]
    assert cluster.launcher.addresses[1] == ("10.213.1.10", "10.213.1.99", "10.213.1.12")
    known = recorded(cluster, plan)
    assert [node.private_ip for node in known.plan.nodes] == after.split()


def test_a_run_with_too_few_nodes_left_has_failed(cluster: LocalCluster) -> None:
    async def scenario() -> Verdict:
        fields = retried(node_wait="1s")
        plan = planned(nodes={"min": 2, "max": 3}, commands=(WAITS,), **fields)
        running = asyncio.ensure_future(cluster.supervisor(plan).run())
        for rank in range(3):
            await cluster.printed(rank, "attempt 0")
        for rank in (1, 2):
            cluster.launcher.lose(rank)
        return await running

    reason = asyncio.run(scenario()).reason
    assert reason.endswith(
        "; node1, node2 did not come back within 1 s: 1 of at least 2 nodes are left"
    )


def test_a_run_that_waits_can_be_stopped(cluster: LocalCluster) -> None:
    supervisor = cluster.supervisor(planned(commands=(WAITS,), **retried()))

    async def scenario() -> Verdict:
        running = asyncio.ensure_future(supervisor.run())
        await lose(cluster, 1)
        await seen(cluster, "waiting_for_nodes")
        supervisor.stop()
        return await running

    verdict = asyncio.run(scenario())
    assert (verdict.status, verdict.exit_code) == ("stopped", 130)


def test_a_run_that_is_stopped_while_a_failed_attempt_ends_is_not_retried(
    cluster: LocalCluster,
) -> None:
    stops = f"trap '{when(f'{cluster.folder}/go')}' TERM; echo runs; sleep 1000 & wait"
    command = f"if [ $GPUCTL_NODE_RANK = 1 ]; then {when(f'{cluster.folder}/fail')}; exit 7; fi"
    supervisor = cluster.supervisor(planned(commands=(f"{command}; {stops}",), **retried()))

    async def scenario() -> Verdict:
        running = asyncio.ensure_future(supervisor.run())
        await cluster.printed(0, "runs")
        (cluster.folder / "fail").touch()
        await seen(cluster, "node_exited")
        supervisor.stop()
        (cluster.folder / "go").touch()
        return await running

    verdict = asyncio.run(scenario())
    assert (verdict.status, verdict.exit_code) == ("stopped", 130)
    kinds = [kind for kind, _ in cluster.kinds()]
    assert kinds.count("attempt_ended") == 1
    assert "attempt_started" not in kinds


def test_nodes_are_powered_off_after_the_last_attempt(cluster: LocalCluster) -> None:
    plan = planned(nodes=1, commands=("exit 3",), on_stop="destroy", **retried(attempts=2))
    supervisor = cluster.supervisor(plan)

    async def scenario() -> None:
        await supervisor.run()
        assert not cluster.launcher.powered_off
        await supervisor.power_off_unattended()

    asyncio.run(scenario())
    assert cluster.launcher.powered_off
    kinds = [kind for kind, _ in cluster.kinds()]
    assert kinds.index("attempt_ended") < kinds.index("attempt_started")
    assert kinds[-2:] == ["run_finished", "powering_off"]


def recorded(cluster: LocalCluster, plan: LaunchPlan) -> RunState:
    known = RunState(plan)
    for line in journal_events(cluster.folder / JOURNAL):
        known.add(line)
    return known


def take_up_while_it_waits(cluster: LocalCluster, tell: Callable[[Supervisor], None]) -> Verdict:
    """Kill a supervisor that waits for node1, and take the run up.

    `tell` is what its last act was: it is in the journal, and nobody has acted on it.
    """
    plan = planned(commands=(f'{WAITS}; echo "$GPUCTL_NODES_IPS"',), **retried())

    async def scenario() -> Verdict:
        killed = cluster.supervisor(plan)
        running = asyncio.ensure_future(killed.run())
        await lose(cluster, 1)
        await seen(cluster, "waiting_for_nodes")
        running.cancel()
        await asyncio.wait([running])
        tell(killed)
        return await cluster.supervisor(plan).run()

    verdict = asyncio.run(scenario())
    kinds = [kind for kind, _ in cluster.kinds()]
    assert [kinds.count(kind) for kind in ("attempt_ended", "waiting_for_nodes")] == [1, 1]
    return verdict


def test_a_supervisor_killed_while_it_waits_hears_what_it_was_told(cluster: LocalCluster) -> None:
    verdict = take_up_while_it_waits(cluster, lambda one: one.heal('{"node1": "10.213.1.99"}'))
    assert verdict.status == "done"
    assert cluster.output(0) == "attempt 0\nattempt 1\n10.213.1.10\n10.213.1.99\n"
    assert cluster.launcher.addresses[0] == ("10.213.1.10", "10.213.1.99")
    known = recorded(cluster, planned(commands=("true",), **retried()))
    assert (known.number, known.plan.nodes[1].private_ip) == (2, "10.213.1.99")


def test_a_supervisor_killed_while_it_waits_can_be_stopped(cluster: LocalCluster) -> None:
    verdict = take_up_while_it_waits(cluster, lambda one: one.stop())
    assert (verdict.status, verdict.reason) == ("stopped", "stopped on request")


def test_the_rest_of_a_wait_is_what_the_journal_says() -> None:
    assert retry_loop.time_left(NodeReady(0, time=1000.0), 60, 1050.0) == 10
    assert retry_loop.time_left(NodeReady(0, time=1000.0), 60, 1100.0) == 0
    assert (
        retry_loop.time_left(NodeReady(0, time=1000.0), 60, 900.0) == 60
    )  # by the clock of an earlier boot


def test_a_supervisor_killed_in_the_second_attempt(cluster: LocalCluster) -> None:
    waits = f"until test -e {cluster.folder}/killed; do sleep 0.05; done"
    command = f"{COUNT} test $GPUCTL_RESTART_COUNT != 0 || exit 5; {waits}; echo goes on"
    run = Supervised(cluster, make_plan(commands=(command,), retry={"backoff": "2s"}))
    run.kill_when(lambda journal: '"attempt_ended"' in journal)
    run.kill_when(lambda journal: journal.count("attempt 1") == 2)
    (cluster.folder / "killed").touch()
    assert run.finish().status == "done"
    kinds = [kind for kind, _ in cluster.kinds()]
    times = [kinds.count(one) for one in ("attempt_ended", "attempt_started", "node_started")]
    assert times == [1, 1, 4]
    for rank in (0, 1):  # the other one may end the first attempt before this one prints
        assert cluster.output(rank).removeprefix("attempt 0\n") == "attempt 1\ngoes on\n"
