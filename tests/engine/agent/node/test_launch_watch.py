"""Ranks and the network of a run, as its nodes tell of them: the wrong run fails."""

import re
from dataclasses import replace

import pytest

from engine.contract.head_events import NetworkSeen
from engine.contract.plan import LaunchPlan, NetworkPlan
from engine.contract.worker_events import RankStarted
from tests.engine.conftest import LocalCluster, make_plan

pytestmark = pytest.mark.slow


def launched(cluster: LocalCluster, ranks: str, processes: tuple[int, ...] = (1, 1)) -> LaunchPlan:
    """A launcher on node0 that runs `ranks`; `rank NODE RANK SIZE` is one of its ranks."""
    rank = f'rank() {{ echo "$2 $3" > {cluster.folder}/node$1/ranks; }}'
    command = f"if [ $DSTACK_NODE_RANK = 0 ]; then {rank}; {ranks}; else exec sleep infinity; fi"
    plan = make_plan(
        startup_order="workers-first", stop_criteria="master-done", commands=(command,)
    )
    nodes = tuple(
        replace(node, processes=count) for node, count in zip(plan.nodes, processes, strict=True)
    )
    return replace(plan, nodes=nodes)


def test_every_rank_where_it_was_planned(cluster: LocalCluster) -> None:
    verdict = cluster.execute(launched(cluster, "rank 0 0 2; rank 1 1 2"))
    assert (verdict.status, verdict.exit_code) == ("done", 0)
    started = [event for event in cluster.events() if isinstance(event, RankStarted)]
    assert sorted((e.rank, e.process, e.size) for e in started) == [(0, 0, 2), (1, 1, 2)]


@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        (
            "rank 0 0 2; rank 0 1 2; exec sleep 1000",
            "node0 got 2 ranks of 2, 1 were planned there: the launcher ignored the hostfile",
        ),
        ("rank 0 0 1; exec sleep 1000", "the launcher started 1 ranks, 2 were planned"),
        ("rank 0 0 2", "node1 ran 0 of its 1 ranks"),
        (":", "node0 ran 0 of its 1 ranks"),
        (f"echo nonsense > $RUN/ranks; echo 1 2 3 > $RUN/ranks; echo {'9' * 20} 2 > $RUN/ranks",
         "node0 ran 0 of its 1 ranks"),
    ],
)  # fmt: skip
def test_another_launch_than_planned_fails(cluster: LocalCluster, ranks: str, reason: str) -> None:
    verdict = cluster.execute(launched(cluster, ranks.replace("$RUN", f"{cluster.folder}/node0")))
    assert (verdict.status, verdict.exit_code, verdict.reason) == ("failed", 1, reason)


LONGEST = 64 * 1024  # characters of a line that are looked at
SOCKETS = "node0:7:9 [0] NCCL INFO Using network Socket"
EFA = NetworkPlan(preset="efa", promises="efa", interfaces=4)


def told(cluster: LocalCluster) -> list[tuple[int, str]]:
    return [(e.rank, e.level) for e in cluster.events() if isinstance(e, NetworkSeen)]


def test_a_line_that_shows_sockets_fails_the_run(cluster: LocalCluster) -> None:
    plan = make_plan(
        commands=(f"printf '{SOCKETS[:30]}'; sleep 2; echo '{SOCKETS[30:]}'; sleep 9",)
    )
    plan = replace(plan, network=EFA)
    verdict = cluster.execute(plan)
    assert (verdict.status, verdict.exit_code, verdict.first_failed_rank) == ("failed", 1, 0)
    assert verdict.reason.startswith("node0 uses sockets instead of EFA: `Using network Socket`;")
    assert told(cluster) == [(0, "fault")]


def test_a_warning_does_not(cluster: LocalCluster) -> None:
    warn = replace(EFA, verify="warn")
    plan = replace(make_plan(commands=(f"echo '{SOCKETS}'",)), network=warn)
    assert cluster.execute(plan).status == "done"
    assert told(cluster) == [(0, "warning")]


def test_a_proof_that_never_came_fails_a_run_that_was_done(cluster: LocalCluster) -> None:
    require = replace(EFA, verify="require")
    plan = replace(make_plan(commands=("true",)), network=require)
    verdict = cluster.execute(plan)
    assert (verdict.status, verdict.exit_code) == ("failed", 1)
    assert verdict.reason.startswith("no line of NCCL shows EFA, which `verify: require` needs")


def test_a_proof_that_never_came_does_not_hide_the_jobs_own_failure(cluster: LocalCluster) -> None:
    require = replace(EFA, verify="require")
    plan = replace(make_plan(commands=("exit 7",)), network=require)
    assert cluster.execute(plan).exit_code == 7


def test_a_node_that_cannot_be_prepared_says_why(cluster: LocalCluster) -> None:
    (cluster.folder / "node1").mkdir()
    (cluster.folder / "node1" / "bin").write_text("in the way")
    verdict = cluster.execute(make_plan(commands=("true",)))
    assert (verdict.exit_code, verdict.first_failed_rank) == (125, 1)
    assert verdict.reason.startswith("node1 cannot run the job: ")
    assert verdict.reason.endswith(f"File exists: '{cluster.folder}/node1/bin'")


def test_a_run_does_not_start_if_bash_cannot_read_a_command(cluster: LocalCluster) -> None:
    verdict = cluster.execute(make_plan(commands=("echo first", "cat <<EOF\nx\n EOF", "exit 3")))
    assert (verdict.status, verdict.exit_code) == ("failed", 125)
    assert re.fullmatch(
        "node[01] cannot run the job: entry 2 of its commands is not bash: here-document at line 1"
        r" delimited by end-of-file \(wanted `EOF'\)",
        verdict.reason,
    )
    assert "".join(cluster.output(rank) for rank in (0, 1)) == ""


def test_a_job_may_have_gpuctls_names_and_traps(cluster: LocalCluster) -> None:
    names = "readonly status=5 entry=1 part=1 of=1 gpuctl_status=2; trap 'echo bye' EXIT"
    verdict = cluster.execute(make_plan(commands=(names, "false | true", "exit 3")))
    assert (verdict.status, verdict.exit_code) == ("failed", 3)


def test_a_variable_may_refer_to_the_nodes_own(cluster: LocalCluster) -> None:
    env = {"PATH": "/opt/x:${PATH}", "WHERE": "rank ${GPUCTL_NODE_RANK} of ${NONE}$HOME"}
    verdict = cluster.execute(make_plan(env=env, commands=('echo "$WHERE"; echo "${PATH%%:*}"',)))
    assert verdict.status == "done"
    assert cluster.output(1) == "rank 1 of $HOME\n/opt/x\n"
