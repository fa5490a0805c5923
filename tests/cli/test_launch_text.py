"""`gpuctl run --dry-run` as text: what all nodes have once, then what each has alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.output import Output
from cli.render.launch_plan import show
from engine.contract.codec import from_json
from engine.contract.node_plan import CodePlan, ImagePlan, NodePlan
from engine.contract.plan import LaunchPlan, NetworkPlan, NotifyPlan
from tests.engine.plan.test_modes import planned


def node(rank: int, role: str, script: str, processes: int = 8) -> NodePlan:
    return NodePlan(
        rank=rank,
        name=f"node{rank}",
        private_ip=f"10.0.0.{rank}",
        role=role,
        environment={"SAME": "a b", "RANK": str(rank)},
        secrets={"TOKEN": "HF"},
        script=script,
        files={"/r/hostfile": "10.0.0.0 slots=8\n10.0.0.1 slots=8\n"},
        processes=processes,
    )


PLAN = LaunchPlan(
    type="mpi",
    run_id="job-000001",
    name="job",
    cluster="demo",
    head="node0",
    startup_order="workers-first",
    stop_criteria="master-done",
    max_duration_s=None,
    on_stop="keep",
    ready=None,
    image=ImagePlan(reference="reg/job:1"),
    network=NetworkPlan(preset="efa", promises="efa", interfaces=4),
    nodes=(node(0, "launcher", "mpirun x\n"), node(1, "worker", "sleep infinity\n", 0)),
    cluster_ips=("10.0.0.0", "10.0.0.1"),
    dashboard="http://10.0.0.0:8265",
)

TEXT = """\
Run job-000001 of type mpi on cluster demo: 2 nodes, startup workers-first, over when master-done, then keep
network preset efa, verify auto
image reg/job:1
dashboard http://10.0.0.0:8265

every node:
  SAME='a b'
  TOKEN=*** (secret HF)
  /r/hostfile:
    10.0.0.0 slots=8
    10.0.0.1 slots=8

rank 0  node0  10.0.0.0  launcher, 8 ranks
  RANK='0'
  script:
    mpirun x

rank 1  node1  10.0.0.1  worker
  RANK='1'
  script:
    sleep infinity
"""  # noqa: E501


def test_the_time_that_is_left_of_a_spot_instances_notice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(replace(PLAN, is_spot=True), Output())
    line = (
        "notice of a spot instance's end: AWS gives 120 s and gpuctl asks every 5 s, so the job has"
        " 113 s or more"
    )
    assert line in capsys.readouterr().out.splitlines()
    page = Path(__file__).parents[2] / "docs/do/notices.md"
    assert f"\n{line}\n" in page.read_text()


def test_what_nodes_share_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    show(PLAN, Output())
    assert capsys.readouterr().out == TEXT


WORK = {"GPUCTL_WORKDIR": "/var/lib/gpuctl/runs/nccl-000001/work"}
WITH_CODE = replace(
    PLAN,
    on_stop="destroy",
    nodes=tuple(replace(node, environment={**node.environment, **WORK}) for node in PLAN.nodes),
)


def test_what_is_lost_without_a_client_is_in_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    code = CodePlan(outputs=("out/", "*.pt"))
    show(replace(WITH_CODE, code=code), Output())
    assert capsys.readouterr().out.splitlines()[2] == (
        "if no client is attached at its end, the nodes power off a minute later: its log, metrics"
        " and outputs (out/, *.pt) are lost then if no client has fetched them"
    )


def test_what_is_saved_without_a_client_is_in_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    code, saved = CodePlan(outputs=("out/",)), "/shared/gpuctl/saved/nccl-000001"
    show(replace(WITH_CODE, code=code, saved=saved), Output())
    assert capsys.readouterr().out.splitlines()[2] == (
        "if no client is attached at its end, the nodes power off a minute later: its log, metrics"
        " and outputs (out/) are copied to /shared/gpuctl/saved/nccl-000001 before"
    )


def test_targets_of_notifications_and_what_they_get_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = replace(
        PLAN,
        notify=(
            NotifyPlan(form="slack", to_secret="HOOK", on=("start", "end")),
            NotifyPlan(form="command", to="mail me", secrets={"K": "KEY"}, on=("end",)),
            NotifyPlan(form="json", to="https://a.example/x", on=("failure",)),
            NotifyPlan(form="email", to="mail:587", values={"to": "a@b.c"}, on=("start",)),
        ),
    )
    show(plan, Output())
    lines = capsys.readouterr().out.splitlines()[4:12]
    assert lines[:3] == [
        "notify[0] webhook in the form slack, on start, end: secret HOOK",
        '  {"text": "run job-000001 on cluster demo has started on 2 nodes"}',
        "notify[1] command, on end: mail me",
    ]
    assert lines[6] == "notify[3] email, on start: mail:587, to a@b.c"
    assert (
        json.loads(lines[7])["subject"] == "run job-000001 on cluster demo has started on 2 nodes"
    )
    assert lines[4] == "notify[2] webhook in the form json, on failure: https://a.example/x"
    ended, failed = json.loads(lines[3]), json.loads(lines[5])
    assert (ended["event"], failed["event"]) == ("end", "failure")
    assert failed["text"] == (
        "run job-000001 on cluster demo has failed after 1 h 50 min with exit code 1:"
        " node0: exited with 1"
    )


def test_json_is_the_plan_itself(capsys: pytest.CaptureFixture[str]) -> None:
    show(PLAN, Output(as_json=True))
    assert from_json(LaunchPlan, json.loads(capsys.readouterr().out)) == PLAN


def test_the_cases_of_nccl_tests_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(
        type="nccl-tests",
        sizes=("1M", "2G"),
        expect={"all_reduce": {"busbw": ">= 380", "at": "2G"}},
    )
    show(plan, Output())
    assert capsys.readouterr().out.splitlines()[2:6] == [
        "",
        "case  what is measured  gate",
        "   1  all_reduce 1 MiB",
        "   2  all_reduce 2 GiB  >= 380 GB/s at 2147483648 bytes",
    ]
