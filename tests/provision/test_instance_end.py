"""What AWS says about a machine that does not answer, and what a client makes of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from config.target import Target
from engine.contract.head_events import HeadUnreachable, StopAsked
from engine.record.run_errors import RunLost
from operations.lost_head import head_watch, lost_head
from provision.aws.clients import client
from provision.aws.instances import instance_end
from provision.state.store import ClusterStore
from tests.cli.conftest import remember
from tests.engine.conftest import make_inventory, make_plan
from tests.infra.region import CREDENTIALS, Worlds
from tests.provision.test_interruptions import spot_nodes

SILENT = HeadUnreachable(time=1.0, seconds=11.0, reason="node0: no answer")


def await_end(ec2: Any, instance: str) -> None:
    waits = {"Delay": 1, "MaxAttempts": 60}
    ec2.get_waiter("instance_terminated").wait(InstanceIds=[instance], WaiterConfig=waits)


def test_a_run_is_lost_when_aws_says_that_its_heads_machine_ended(
    tmp_path: Path, worlds: Worlds
) -> None:
    with worlds.api(tmp_path) as (url, _):
        there = Target("test", "us-east-1", tmp_path, endpoint=url, environment=CREDENTIALS)
        here: Any = SimpleNamespace(cluster_store=lambda _: ClusterStore(there))
        remember(make_inventory(2), there)
        ec2 = client(there, "ec2")
        head, other = spot_nodes(there, ec2)
        nodes = zip(make_inventory(2).nodes, (head, other), strict=True)
        machines = tuple(node.model_copy(update={"instance_id": one}) for node, one in nodes)
        inventory = make_inventory(2).model_copy(update={"nodes": machines})
        watch = head_watch(here, inventory, make_plan())

        ec2.get_waiter("instance_running").wait(InstanceIds=[head])
        assert instance_end(there, head) == ""
        watch(SILENT)

        ec2.terminate_instances(InstanceIds=[head])
        await_end(ec2, head)
        watch(StopAsked(time=1.0, reason="stopped on request"))
        with pytest.raises(RunLost) as lost:
            watch(SILENT)
        end = "is terminated: Client.UserInitiatedShutdown: User initiated shutdown"
        assert lost.value.reason == f"node0 was lost: its machine {head} {end}"
        assert str(lost.value) == f"run job-000001: {lost.value.reason}; `gpuctl up` replaces it"
        may_be_over = lost_head(here, inventory, make_plan(on_stop="destroy"))
        assert may_be_over is not None
        assert may_be_over.reason.endswith("; the run may have ended before")
        assert may_be_over.saved == ""
        shares = inventory.model_copy(update={"shared": "/s"})
        for is_off in (False, True):
            if is_off:
                ec2.terminate_instances(InstanceIds=[other])
                await_end(ec2, other)
            saves = lost_head(here, shares, make_plan(on_stop="destroy"))
            assert saves is not None
            assert saves.saved == ("/s/gpuctl/saved/job-000001" if is_off else "")
            assert saves.reason == (
                f"node0 was lost: its machine {head} {end}; the run may have ended before, and have"
                " left its log, metrics and outputs in /s/gpuctl/saved/job-000001"
            )
            assert saves.hint == (
                "`gpuctl up FILE` and `gpuctl attach job-000001` get them,"
                " `gpuctl down demo` deletes them"
            )
        assert instance_end(there, "i-0123456789abcdef0") == "does not exist any more"

        nowhere = Target("test", "us-east-1", tmp_path, endpoint="http://127.0.0.1:9")
        here.cluster_store = lambda _: ClusterStore(nowhere)
        assert lost_head(here, inventory, make_plan()) is None
