"""Two people with one bucket: the life of a cluster from either machine. Nothing boots."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from config.bucket import Bucket
from config.cluster.cluster_file import Cluster
from config.errors import InfraError, InputError, NodeError
from config.progress import silent
from config.target import Target
from infra.stack.installation import Engine
from lab.buckets import make_bucket
from provision import up as life
from provision.aws.objects import Objects
from provision.down import down
from provision.state.store import ClusterStore
from provision.status import clusters
from tests.infra.region import Region
from tests.infra.test_stack import left
from tests.labs import KEY
from tests.provision.unbooted import nothing_boots

pytestmark = [pytest.mark.engine, pytest.mark.thorough]


LEFT_LOCK = {
    "pid": 7,
    "username": "anna",
    "hostname": "gone",
    "timestamp": "2026-11-23T12:00:00Z",
}
"""What Pulumi's engine writes into its lock."""


def machine(name: str, here: Region, folder: Path) -> Target:
    """The target of one of the two, whose machine has a state folder of its own."""
    return replace(here.target, state=folder / name, backend="s3://team/gpus", owner=name)


def cluster(nodes: int) -> Cluster:
    return Cluster.model_validate({"name": "demo", "nodes": nodes, "instance_type": "c6i.large"})


def test_a_cluster_has_its_life_on_two_machines(
    here: Region, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del engine  # it is installed
    assert here.target.endpoint is not None
    make_bucket("team", here.target.endpoint, KEY)
    anna, ben = (machine(name, here, tmp_path) for name in ("anna", "ben"))

    life.up(life.plan(cluster(1), anna, silent), anna, silent, boot=nothing_boots)
    (seen,) = clusters(ClusterStore(ben))
    assert (seen.name, seen.state, seen.problems) == ("demo", "ready", ())
    larger = life.plan(cluster(2), ben, silent)
    assert [change.name for change in larger.plan.changes if change.op == "create"] == ["node1"]
    assert larger.plan.only_adds
    # HOME has no keys either.
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(NodeError, match="there is no key for cluster demo on this machine"):
        life.up(larger, ben, silent, boot=nothing_boots)  # and nothing was changed
    life.up(life.plan(cluster(2), anna, silent), anna, silent, boot=nothing_boots)
    assert len(ClusterStore(ben).inventory("demo").nodes) == 2
    assert len(ClusterStore(anna).inventory("demo").nodes) == 2

    with (
        ClusterStore(anna).lock("demo", "gpuctl extend"),
        pytest.raises(InputError, match="is being changed by `gpuctl extend` of anna on"),
    ):
        down("demo", ben, silent)
    # Pulumi's engine on a machine that is gone has left its lock.
    locks = Objects(ben, Bucket("team", "gpus"))
    key = "gpus/.pulumi/locks/organization/gpuctl/demo/0.json"
    locks.write(key, json.dumps(LEFT_LOCK), None)
    with pytest.raises(InfraError) as locked:
        down("demo", ben, silent)
    assert str(locked.value) == (
        "demo is being changed by anna@gone (pid 7) since 2026-11-23T12:00:00Z; wait for it; if"
        " that machine is gone, remove its lock:"
        " `aws s3 rm --recursive s3://team/gpus/.pulumi/locks/organization/gpuctl/demo/`"
    )
    assert left(here) == [], "nothing goes on to cost money"
    locks.remove(key)
    down("demo", ben, silent)
    assert (ClusterStore(anna).records(), clusters(ClusterStore(anna))) == ((), ())
    assert not any((anna.clusters / "demo").glob("id_*")), "nor is the key of its nodes kept"
    # What is left on anna's machine of a stack in the bucket does not disturb one of the same name.
    alone = life.plan(cluster(1), replace(anna, backend=None), silent)
    assert alone.plan.is_new
