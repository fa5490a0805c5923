"""`gpuctl status` and `gpuctl ps`: machines, the last run, and how old each fact is."""

import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.render.status import status_lines
from config.target import Target
from engine.record.history import History, RunRecord
from engine.record.journal_copy import JournalCopy
from operations.status import LastRun
from provision.aws.clients import client
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.status import ClusterStatus, NodeStatus
from tests.cli.conftest import remember
from tests.cli.test_ps import (
    Heads,
    earlier,
    heads,  # noqa: F401  a fixture
)
from tests.engine.conftest import make_inventory, make_plan
from tests.provision.test_sweep import make_cluster


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def node(name: str, state: str = "running") -> NodeStatus:
    return NodeStatus(name, f"i-{name}", state, "10.0.0.1", type="p4d.24xlarge", zone="us-east-1a")


def status(*nodes: NodeStatus, **values: Any) -> ClusterStatus:
    return ClusterStatus(
        name="demo", id="abcdefgh", owner="", region="us-east-1", state="ready", nodes=nodes,
        others=(), since=None, hourly_usd=43.98, spent_usd=88.1, ends=None, idle_s=None, uses=(),
        problems=(), **values,
    )  # fmt: skip


def record(**values: Any) -> RunRecord:
    fields: dict[str, Any] = {
        "run_id": "train-000001", "name": "train", "cluster": "demo", "nodes": 2,
        "on_stop": "keep", "status": "running", "exit_code": None, "first_failed_rank": None,
        "reason": "", "started": ago(9000), "ended": None, "cost_usd": None,
    }  # fmt: skip
    return RunRecord(**{**fields, **values})


def test_a_cluster_shows_machines_last_run_and_the_age_of_both() -> None:
    last = LastRun(record(), heard=ago(3 * 60))
    shown = status_lines(status(node("node0"), node("node1"), as_of=ago(12)), last)
    assert shown == [
        "demo: ready, $43.98 per hour, about $88.10 so far",
        "  2 of 2 nodes run: 2 x p4d.24xlarge in us-east-1a",
        "  node0    running        10.0.0.1         i-node0",
        "  node1    running        10.0.0.1         i-node1",
        "  last run train-000001: running, heard of 3m 00s ago",
        "  as AWS had it 12s ago",
    ]


def test_a_lost_node_does_not_run_and_a_run_that_is_over_has_its_end() -> None:
    over = record(status="failed", exit_code=137, ended=ago(7200))
    shown = status_lines(
        status(node("node0"), node("node1", "terminated")), LastRun(over, heard=None)
    )
    assert shown[1] == "  1 of 2 nodes run: 2 x p4d.24xlarge in us-east-1a"
    assert shown[-1] == "  last run train-000001: failed, exit code 137, ended 2h 00m ago"


@pytest.mark.slow
def test_the_newest_run_of_each_cluster_is_shown(aws: Target, remembered: Target) -> None:
    ami = image_id(client(aws, "ssm"), BASTION_IMAGE)
    make_cluster(client(aws, "ec2"), ami, "demo")
    earlier(remembered, "old", 2)
    earlier(remembered, "new", 1)
    (document,) = json.loads(CliRunner().invoke(app, ["status", "demo", "--json"]).stdout)
    assert document["last_run"]["run_id"] == "new-000001"
    assert document["last_run"]["heard"] is None
    assert [(n["type"], n["zone"]) for n in document["nodes"]] == [("p4d.24xlarge", "us-east-1a")]
    lines = CliRunner().invoke(app, ["status", "demo"]).stdout.splitlines()
    assert "  1 of 1 nodes run: 1 x p4d.24xlarge in us-east-1a" in lines
    assert "  last run new-000001: done, exit code 0, ended 24h 00m ago" in lines
    assert lines[-1] in ("  as AWS had it 0s ago", "  as AWS had it 1s ago")


def test_ps_says_when_it_last_heard_of_a_run_that_goes_on(
    remembered: Target,
    heads: Heads,  # noqa: F811
) -> None:
    heads.end = ""
    remember(make_inventory(2), remembered)
    earlier(remembered, "over", 1)
    plan = make_plan()
    with History(remembered.runs) as history:
        history.begin(plan)
    copy = JournalCopy(remembered.runs, plan.run_id)
    copy.append('{"kind": "node_ready", "time": 0, "rank": 0}')
    copy.close()
    then = ago(3600).timestamp()
    os.utime(remembered.runs / plan.run_id / "journal.jsonl", (then, then))
    head, *rows = CliRunner().invoke(app, ["ps"]).stdout.splitlines()
    assert head.split()[-2:] == ["STARTED", "HEARD"]
    assert rows[0].endswith("  1h 00m ago")
    assert not rows[1].endswith("ago")
