"""What AWS says about a machine that does not answer, and what a client makes of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.lost_head import head_watch, lost_head
from config.target import Target
from engine.events import HeadUnreachable, StopAsked
from engine.known_run import RunLost
from provision.aws.clients import client
from provision.aws.instance_end import instance_end
from tests.engine.conftest import make_inventory, make_plan
from tests.infra.region import CREDENTIALS, Worlds
from tests.provision.test_interruptions import spot_nodes

SILENT = HeadUnreachable(time=1.0, seconds=11.0, reason="node0: no answer")


def test_a_run_is_lost_when_aws_says_that_its_heads_machine_ended(
    tmp_path: Path, worlds: Worlds
) -> None:
    with worlds.api(tmp_path) as (url, _):
        there = Target("test", "us-east-1", tmp_path, endpoint=url, environment=CREDENTIALS)
        here: Any = SimpleNamespace(cluster_target=lambda _: there)
        ec2 = client(there, "ec2")
        head, _ = spot_nodes(there, ec2)
        inventory = make_inventory(2)
        first = inventory.nodes[0].model_copy(update={"instance_id": head})
        inventory = inventory.model_copy(update={"nodes": (first, *inventory.nodes[1:])})
        watch = head_watch(here, inventory, make_plan())

        ec2.get_waiter("instance_running").wait(InstanceIds=[head])
        assert instance_end(there, head) == ""
        watch(SILENT)

        ec2.terminate_instances(InstanceIds=[head])
        ec2.get_waiter("instance_terminated").wait(
            InstanceIds=[head], WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )
        watch(StopAsked(time=1.0, reason="stopped on request"))
        with pytest.raises(RunLost) as lost:
            watch(SILENT)
        end = "is terminated: Client.UserInitiatedShutdown: User initiated shutdown"
        assert lost.value.reason == f"node0 was lost: its machine {head} {end}"
        assert str(lost.value) == f"run job-000001: {lost.value.reason}; `gpuctl up` replaces it"
        may_be_over = lost_head(here, inventory, make_plan(on_stop="destroy"))
        assert may_be_over is not None
        assert may_be_over.reason.endswith("; the run may have ended before")
        assert instance_end(there, "i-0123456789abcdef0") == "does not exist any more"

        nowhere = Target("test", "us-east-1", tmp_path, endpoint="http://127.0.0.1:9")
        here.cluster_target = lambda _: nowhere
        assert lost_head(here, inventory, make_plan()) is None
