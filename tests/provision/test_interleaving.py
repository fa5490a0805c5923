"""Two people share an account: a hundred commands, and each has what he or she asked for."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from config.cluster.cluster_file import Cluster
from config.errors import InputError
from config.progress import silent
from infra.stack.installation import Engine
from provision import up as life
from provision.aws.resources import find_all
from provision.down import down
from provision.state.store import ClusterStore
from tests.infra.region import Region
from tests.interleaving import NAMES, NOBODYS_ID, PEOPLE, Step, carry_out, steps
from tests.provision.unbooted import nothing_boots

TAKEN = "exist in us-east-1, but this machine has no record of it"
UNKNOWN = "no cluster"


class Unbooted:
    """The lab's API and Pulumi's engine; nothing boots."""

    def __init__(self, here: Region, folder: Path) -> None:
        self.targets = {who: replace(here.target, state=folder / who) for who in PEOPLE}

    def do(self, step: Step) -> None:
        try:
            self._do(step)
        except InputError as refused:
            assert step.is_refused, str(refused)
            expected = TAKEN if step.do == "up" else UNKNOWN
            assert expected in str(refused), str(refused)
        else:
            assert not step.is_refused, "it was not refused"

    def _do(self, step: Step) -> None:
        target = self.targets[step.who]
        if step.do == "up":
            values = {"name": step.name, "nodes": 1, "instance_type": "c6i.large"}
            plan = life.plan(Cluster.model_validate(values), target, silent)
            life.up(plan, target, silent, boot=nothing_boots)
        elif step.do == "down":
            # Without an id, the only cluster of a name is meant, also where another owns it.
            down(step.name, target, silent, NOBODYS_ID if step.is_refused else None)
        else:
            nodes = ClusterStore(target).inventory(step.name).nodes
            ours = {one.id for one in find_all(target, step.name) if one.kind == "instance"}
            assert {node.instance_id for node in nodes} <= ours

    def ids(self) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = {}
        for one in find_all(self.targets["ann"], None):
            found.setdefault(one.cluster, set()).add(one.cluster_id)
        return found

    def known(self, who: str) -> Mapping[str, str]:
        return {record.name: record.id for record in ClusterStore(self.targets[who]).records()}


@pytest.fixture
def account(here: Region, engine: Engine, tmp_path: Path) -> Iterator[Unbooted]:
    del engine  # it exists
    yield Unbooted(here, tmp_path)


@pytest.mark.engine
@pytest.mark.thorough
# Coroutines of the SDK are left where its program is broken off; collected, they ask an engine.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_a_hundred_commands_of_two_people(account: Unbooted) -> None:
    carry_out(account, 30, 100)


@pytest.mark.parametrize("seed", range(20))
def test_steps_are_the_same_for_a_seed_and_of_all_kinds(seed: int) -> None:
    taken = list(steps(seed, 2000))
    assert taken == list(steps(seed, 2000))
    kinds = {(step.who, step.do, step.name, step.is_refused) for step in taken}
    assert len(kinds) == len(PEOPLE) * 3 * len(NAMES) * 2
