"""Step 1: dry runs that create nothing, verdicts, quotas, and the cheapest type with EFA."""

import json
from pathlib import Path

import pytest

from config.cluster.cluster_file import Cluster
from config.errors import CloudError
from config.loading.load import load_cluster
from config.target import Target
from lab import fault_table
from provision.aws.clients import client
from provision.permissions.actions import needed
from provision.permissions.policy import policy
from smoke.cheapest import Choice, candidates, cheapest
from smoke.permissions import DRY_RUNS, Permission, permissions, quota_text, verdict
from smoke.tagged import tagged


def _cluster(name: str) -> Cluster:
    return load_cluster(Path("stacks") / name)


def test_every_permission_is_tried_and_nothing_is_created(empty_region: Target) -> None:
    ec2 = client(empty_region, "ec2")
    found = permissions(empty_region)
    assert {one.verdict for one in found} == {"allowed"}
    actions = [one.action for one in found]
    assert len(actions) == len(set(actions))
    assert len(DRY_RUNS) == 6
    assert needed(("up", "down", "status"), ("network",)) <= set(actions)
    assert Permission("ec2:CreateVpc", "allowed") in found
    assert ec2.describe_vpcs()["Vpcs"] == []
    assert ec2.describe_internet_gateways()["InternetGateways"] == []
    assert ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert ec2.describe_key_pairs()["KeyPairs"] == []
    assert tagged(empty_region, "smoke") == ()


def test_gpuctls_own_policy_suffices_and_what_is_missing_is_found(empty_region: Target) -> None:
    state = empty_region.state.parents[1]
    actions = needed(("up", "down", "status", "doctor"), ("network",))

    def denied(allowed: frozenset[str]) -> set[str]:
        (state / "policy.json").write_text(json.dumps(policy(allowed)))
        fault_table.write(state / "faults.json", {"policy": (str(state / "policy.json"),)})
        return {one.action for one in permissions(empty_region) if one.verdict != "allowed"}

    assert denied(actions) == set()
    gone = {"ec2:CreateVpc", "ec2:TerminateInstances", "ec2:GetConsoleOutput"}
    assert denied(actions - gone) == gone


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("DryRunOperation", Permission("ec2:X", "allowed")),
        ("UnauthorizedOperation", Permission("ec2:X", "denied")),
        ("InvalidVpcID.NotFound", Permission("ec2:X", "not known", "InvalidVpcID.NotFound")),
    ],
)
def test_the_verdict_follows_from_the_code(code: str, expected: Permission) -> None:
    def ask() -> None:
        raise CloudError("AWS refused X", "", code)

    assert verdict("ec2:X", ask) == expected


def test_quotas_that_suffice(target: Target) -> None:
    assert quota_text(target, _cluster("smoke-2x-p4d.yaml")) == "enough"


def test_the_cheapest_type_is_offered_has_efa_and_a_price(target: Target) -> None:
    assert candidates()[0] == "g6.8xlarge"
    choice = cheapest(target)
    assert choice.instance_type in candidates()
    assert choice == Choice(choice.instance_type, choice.usd_h, "spot, lowest zone")
