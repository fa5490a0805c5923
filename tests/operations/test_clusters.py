"""Clusters from Python: what a caller gets before it acts, and what operations refuse."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from config.errors import InputError
from config.progress import Progress
from config.target import Target
from infra.stack.changes import Change, Plan
from operations import (
    cost,
    heal,
    lease,
    login,
    permissions,
    proposal,
    release,
    rent,
    team,
)
from operations.chosen_target import ChosenTarget
from operations.rent import FleetPlan
from provision.billing.ledger import keep
from tests.cli.test_held import a_run
from tests.provision.test_ownership import with_id
from tests.provision.test_record import a_record

pytestmark = pytest.mark.slow

HERE = ChosenTarget(region="us-east-1")
NODE = "aws:ec2/instance:Instance"


class Notes:
    """A watcher that keeps what it gets."""

    def __init__(self) -> None:
        self.steps: list[Progress] = []
        self.notes: list[str] = []
        self.warnings: list[str] = []

    def report(self, progress: Progress) -> None:
        self.steps.append(progress)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def announce(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def planned(*changes: Change) -> FleetPlan:
    return FleetPlan(a_record().resolved, Plan(changes), None)


def test_a_removal_names_the_run_that_it_would_end(cluster: Target) -> None:
    assert release.plan_removal(HERE, "demo") == release.Removal("demo")
    with a_run(cluster.runs) as text:
        removal = release.plan_removal(HERE, "demo")
        assert [run.run_id for run in removal.runs] == [text.split()[1]]
        assert removal.occupancy == text
        other = release.plan_removal(HERE, "demo", cluster_id="aaaa")
        assert (other.runs, other.occupancy) == ((), ""), "its head is unknown here"


def test_a_plan_that_ends_machines_is_refused_while_a_run_is_on_the_cluster(
    cluster: Target,
) -> None:
    ends, adds = planned(Change("replace", NODE, "node0")), planned(Change("create", NODE, "node1"))
    with a_run(cluster.runs) as text:
        rent.check(HERE, adds)
        for carry_out in (rent.check, rent.up):
            with pytest.raises(InputError) as refused:
                carry_out(HERE, ends)
            assert refused.value.message == f"{text}, and this plan ends machines"
    rent.check(HERE, ends)


def test_a_replacement_names_nodes_of_the_cluster_and_its_head(cluster: Target) -> None:
    planned_nodes = heal.plan_replacement(HERE, "demo", ["node1", "node0", "node1"])
    assert [node.name for node in planned_nodes.nodes] == ["node1", "node0"]
    assert planned_nodes.head == "node0"
    assert heal.plan_replacement(HERE, "demo", ["node1"]).head is None
    with pytest.raises(InputError, match=r"^cluster demo has no node node7; it has node\[0-1\]$"):
        heal.plan_replacement(HERE, "demo", ["node7"])
    with a_run(cluster.runs), pytest.raises(InputError, match="and its nodes would end"):
        heal.plan_replacement(HERE, "demo", ["node1"])


def test_costs_are_a_row_for_each_cluster_and_a_torn_line_is_a_warning(
    remembered: Target,
) -> None:
    now, notes = datetime.now(UTC), Notes()
    keep(
        with_id("aaaa", created=now - timedelta(hours=4)),
        now - timedelta(hours=1),
        30.0,
        remembered,
    )
    path = remembered.state / "costs.jsonl"
    path.write_text(path.read_text() + '{"na')
    costs = cost.find(HERE, now - timedelta(days=1), watcher=notes)
    assert [(row.cluster, row.cost_usd) for row in costs.rows] == [("demo", 30.0)]
    assert (costs.by, costs.total_usd) == ("cluster", 30.0)
    assert notes.warnings == [f"gpuctl cannot read 1 line of {path}: it does not count"]


def test_the_first_member_of_a_cluster_is_gpuctls_own_key(cluster: Target) -> None:
    (own,) = team.members(HERE, "demo")
    assert (own.since, own.is_revoked, own.unconfirmed) == (None, False, ())
    assert own.fingerprint.startswith("SHA256:")


def test_a_cluster_gets_the_lease_that_a_caller_names(remembered: Target) -> None:
    file_cluster = a_record("other").resolved.cluster.model_copy(update={"lifetime": None})
    assert lease.is_new_without_end(HERE, file_cluster)
    leased = lease.with_end_after(file_cluster, 3600)
    assert leased.lifetime is not None
    assert leased.lifetime.max == 3600
    assert not lease.is_new_without_end(HERE, leased)


def test_a_proposal_is_a_cluster_that_rent_takes(
    remembered: Target, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("run") / "train.yaml"
    file.write_text(
        "type: task\nname: train\nnodes: 2\ncommands: [x]\nrequires: {gpu: [H100], gpus: 8}\n"
    )
    proposed = proposal.propose(HERE, file)
    assert (proposed.cluster.nodes, proposed.cluster.region) == (2, "us-east-1")
    assert proposed.cluster.instance_type == proposed.offers[0].instance_type


def test_ssh_is_a_command_for_a_node_that_exists(cluster: Target) -> None:
    (cluster.clusters / "demo" / "id_ed25519").touch()
    words = login.ssh_command(HERE, "demo", "node1", ["true"])
    assert (words[:2], words[3:]) == (["ssh", "-F"], ["node1", "true"])
    with pytest.raises(InputError, match=r"^cluster demo has no 'node7'; it has "):
        login.ssh_command(HERE, "demo", "node7")


def test_a_policy_of_one_command_allows_less_than_that_of_all() -> None:
    (status,) = permissions.policy_documents(HERE, commands=("status",))
    every = permissions.policy_documents(HERE)
    assert len(json.dumps(status)) < len(json.dumps(every))
    assert "RunInstances" not in json.dumps(status)
