"""The budget of a cluster that gets new machines: they may not live beyond it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from config.cluster.cluster_file import Cluster
from config.errors import InputError
from config.progress import silent
from infra.stack.installation import Engine
from operations import rent
from provision import up as life
from provision.state.store import ClusterStore
from tests.infra.region import Region
from tests.operations.test_record_reads import Here
from tests.provision.unbooted import nothing_boots

pytestmark = pytest.mark.engine


def test_new_machines_of_an_older_cluster_are_refused_if_they_would_live_beyond_its_budget(
    here: Region, engine: Engine, tmp_path: Path
) -> None:
    """A node costs $0.085 an hour, and access $0.0758 (a bastion, a NAT gateway, addresses)."""
    del engine  # it is installed
    chosen = Here(there=here.target)

    def cluster(nodes: int, **fields: Any) -> Cluster:
        budget = {"lifetime": {"max": "8h"}, "budget": {"max_total": 2.2}}
        fields = {"name": "demo", "nodes": nodes, "instance_type": "c6i.large", **budget, **fields}
        return Cluster.model_validate(fields)

    planned = rent.plan(chosen, cluster(1))
    assert planned.hourly_usd == pytest.approx(0.1608)
    life.up(planned, here.target, silent, boot=nothing_boots)
    assert rent.plan(chosen, cluster(2)).plan.new_machines == ("node1",)

    store = ClusterStore(here.target)
    earlier = datetime.now(UTC) - timedelta(hours=4)
    store.write(store.known_record("demo").model_copy(update={"created": earlier}))
    assert rent.plan(chosen, cluster(1)).plan.is_empty
    with pytest.raises(InputError) as refused:
        rent.plan(chosen, cluster(2))
    assert str(refused.value) == (
        "budget.max_total: cluster demo would cost $2.95 until its new end, at most $2.20 is"
        " allowed; set a shorter lifetime.max, or allow more: budget.max_total"
    )
    assert rent.plan(chosen, cluster(2, budget={"max_total": 3})).plan.new_machines == ("node1",)
