"""How often commands read a cluster's record: with a team's bucket each read is a request."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from config.cluster.cluster_file import Cluster
from config.progress import silent
from config.target import Target
from infra.stack.installation import Engine
from lab.buckets import make_bucket
from operations import lease, release, rent, status
from operations.chosen_target import ChosenTarget
from provision import up as life
from provision.aws.objects import Objects
from tests.infra.region import Region
from tests.labs import KEY
from tests.provision.unbooted import nothing_boots

pytestmark = [pytest.mark.engine, pytest.mark.thorough]


@dataclass(frozen=True)
class Here(ChosenTarget):
    """A command's target in the tests' region."""

    there: Target | None = None

    def target(self, region: str | None = None) -> Target:
        """Return the target."""
        del region
        assert self.there is not None
        return self.there


def cluster(here: ChosenTarget, nodes: int) -> Cluster:
    fields = {"name": "demo", "nodes": nodes, "instance_type": "c6i.large"}
    return lease.with_lifetime(here, Cluster.model_validate(fields))


def test_commands_read_a_record_once_or_after_somebody_else_may_have_written_it(
    here: Region, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del engine  # it is installed
    assert here.target.endpoint is not None
    make_bucket("team", here.target.endpoint, KEY)
    bucket = "s3://team/gpus"
    target = replace(here.target, state=tmp_path / "anna", backend=bucket, owner="anna")
    chosen = Here(backend=bucket, there=target)
    reads: Counter[str] = Counter()
    read = Objects.read

    def counted(objects: Objects, key: str) -> object:
        reads[key.rsplit("/", 1)[-1]] += 1
        return read(objects, key)

    monkeypatch.setattr(Objects, "read", counted)

    def reads_by_command() -> tuple[int, int]:
        counts = reads["cluster.json"], reads["inventory.json"]
        reads.clear()
        return counts

    # For the default of `lifetime`, for the plan, and under the lock.
    for nodes in (1, 1, 2):
        life.up(rent.plan(chosen, cluster(chosen, nodes)), target, silent, boot=nothing_boots)
        assert reads_by_command() == (3, 1)
    assert [entry.name for entry in status.overview(chosen).clusters] == ["demo"]
    assert reads_by_command() == (1, 0)
    removal = release.plan_removal(chosen, "demo")
    assert reads_by_command() == (1, 1)
    release.down(chosen, removal)
    # For its region, for the plan, under the lock, and whether it is gone.
    assert reads_by_command() == (4, 1)
