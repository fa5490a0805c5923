"""The end of a lease as a tag, which clients without the cluster's record read."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from config.cluster.cluster_file import Cluster
from config.errors import NodeError
from config.progress import silent
from infra.stack.installation import Engine
from provision import up as life
from provision.drift import drift
from provision.gc import survey
from provision.state.store import ClusterStore
from provision.status import clusters
from tests.connections import Connect, WithoutSsh
from tests.infra.region import Region, client
from tests.provision.unbooted import nothing_boots

pytestmark = pytest.mark.engine

FILE: dict[str, Any] = {"name": "demo", "nodes": 1, "instance_type": "c6i.large"}


@pytest.fixture
def cluster(
    here: Region,
    engine: Engine,
    reach_nodes: Callable[[Connect], None],
) -> Cluster:
    """A cluster that ends after 8 hours; its machines answer nobody."""
    del engine  # it exists

    class Unreachable(WithoutSsh):
        async def enter(self) -> None:
            raise NodeError("the bastion cannot be reached", "")

    reach_nodes(lambda _: Unreachable())
    made = Cluster.model_validate({**FILE, "lifetime": {"max": "8h"}})
    life.up(life.plan(made, here.target, silent), here.target, silent, boot=nothing_boots)
    return made


def ends(here: Region) -> dict[str, str]:
    """The tag of each machine, by its name."""
    found = client(here.target).describe_instances()["Reservations"]
    tags = [{t["Key"]: t["Value"] for t in m["Tags"]} for r in found for m in r["Instances"]]
    return {one["Name"]: one.get("gpuctl:ends", "") for one in tags}


def test_a_machine_without_the_record_knows_the_end(
    here: Region,
    cluster: Cluster,
) -> None:
    tags = ends(here)
    assert tags.keys() == {"demo-node0", "demo-bastion"}
    first = min(map(datetime.fromisoformat, tags.values()))
    assert 0 < (datetime.now(UTC) + timedelta(hours=8) - first).total_seconds() < 300
    # Pulumi neither reports nor removes it.
    assert drift("demo", here.target, silent).is_empty
    plan = life.plan(cluster, here.target, silent)
    assert plan.plan.is_empty
    life.up(plan, here.target, silent, boot=nothing_boots)
    assert ends(here) == tags
    # Another machine.
    shutil.rmtree(here.target.state / "clusters")
    (seen,) = clusters(ClusterStore(here.target))
    assert (seen.state, seen.ends) == ("orphaned", first.isoformat())
    (found,) = survey(here.target, (here.target.region,), silent).clusters
    last = max(map(datetime.fromisoformat, tags.values()))
    assert found.reasons == (
        f"its instances exist, until {last:%Y-%m-%d %H:%M} UTC",
        "a part of it is less than an hour old",
    )
