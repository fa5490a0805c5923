"""The permissions of each command: derived from the code, as a policy, and checked beforehand."""

import ast
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from config.catalogue.iam_actions import ACTION_SCOPES, is_change
from config.cluster.cluster_file import Cluster
from config.errors import CloudError, InputError
from config.progress import Progress, silent
from config.target import Target
from lab import fault_kinds, fault_table
from lab.provider.resource import Resource
from lab.provider.table import TYPES
from lab.requests.wire import NAMES
from operations.doctor import Check
from operations.doctor import _permissions as doctor_permissions
from provision.aws.account import Caller
from provision.aws.clients import client
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.aws.resources import find_all
from provision.down import down
from provision.permissions.actions import (
    COMMANDS,
    NEEDS,
    features_of,
    needed,
    optional,
)
from provision.permissions.check import Missing, RoleOfNodes, _by_resource, missing_permissions
from provision.permissions.policy import (
    CREATE,
    LIMIT,
    OPEN_CHANNEL,
    OWN_SESSIONS,
    boundary_arn,
    policy,
    size,
    split,
)
from provision.preflight.preflight import resolve
from provision.state.store import ClusterStore
from tests import golden
from tests.aws_calls import Answer, ApiCall
from tests.infra.program_mocks import resources_of
from tests.infra.region import administrator, create_boundary, resolved
from tests.provision.test_sweep import make_cluster

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "policies"
ME = Caller("123456789012", "arn:aws:sts::123456789012:user/moto")
BOUND = RoleOfNodes(boundary=boundary_arn(ME))
SERVICES = ("ec2", "efs", "fsx", "iam", "ssm", "sts", "service-quotas", "pricing")
SIGNED = {name: signed for signed, name in NAMES.items()}


# The actions


def operations() -> dict[str, set[str]]:
    """The IAM actions by boto3's name of the method, of all services that gpuctl has clients of."""
    found: dict[str, set[str]] = {}
    service: Any
    for service in SERVICES:
        client = boto3.client(service, region_name="us-east-1", aws_access_key_id="x",
                              aws_secret_access_key="x")  # fmt: skip
        for method, operation in client.meta.method_to_api_mapping.items():
            found.setdefault(method, set()).add(f"{SIGNED.get(service, service)}:{operation}")
    return found


def methods(path: Path) -> Iterator[str]:
    """The names in a module that may be methods of boto3: attributes, and texts that are names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


WAITERS = {
    "instance_terminated": "describe_instances",
    "nat_gateway_deleted": "describe_nat_gateways",
}
"""boto3's waiters, which gpuctl names, and what they ask."""


FREE = {"sts:GetCallerIdentity"}
"""What needs no permission."""

IMPLIED = {"iam:CreateServiceLinkedRole", "iam:PassRole"}
"""What AWS requires with a creation; no call of gpuctl's own."""


def test_every_call_of_gpuctl_is_in_the_table_and_nothing_else() -> None:
    known = operations()
    called = set[str]()
    for path in (ROOT / "provision").rglob("*.py"):
        named = (WAITERS.get(name, name) for name in methods(path))
        called |= {name for name in named if name in known}
    listed = _listed(provider=False) - IMPLIED | FREE
    assert {name for name in called if not known[name] & listed} == set()
    by_action = {action: name for name, actions in known.items() for action in actions}
    assert {action for action in listed if by_action[action] not in called} == set()


def test_every_type_of_the_program_has_its_calls(target: Target) -> None:
    clusters = (
        {"storage": {"shared": {"type": "efs"}}, "network": {"access": "ssm"}},
        {"storage": {"shared": {"type": "fsx-lustre"}}},
    )
    types = {
        name.partition(" ")[0]
        for cluster in clusters
        for name in resources_of(resolved(target, **cluster))
        if not name.startswith("pulumi:")
    }
    called = {need.resource_type for need in NEEDS} - {""}
    assert types == called == TYPES.keys()


def test_the_labs_provider_makes_no_call_that_the_table_has_not() -> None:
    known = operations()
    extra = dict[str, set[str]]()
    for token, kind in TYPES.items():
        service = SIGNED.get(kind.service, kind.service)
        ours = [one for one in kind.__mro__ if one.__module__.startswith("lab.provider.")]
        names = {name for one in ours if one is not Resource for name in _called_by(one)}
        actions = {action for name in names for action in known.get(name, ())}
        actions = {action for action in actions if action.startswith(f"{service}:")}
        calls = (need.actions for need in NEEDS if need.resource_type == token)
        if lacking := actions.difference(*calls):
            extra[token] = lacking
    assert extra == {}


def test_the_lab_enforces_every_call_of_the_real_provider() -> None:
    known = operations()
    sent = {
        action
        for path in (ROOT / "lab" / "provider").glob("*.py")
        for name in methods(path)
        for action in known.get(name, ())
    }
    implied = set(methods(ROOT / "lab" / "authorization" / "checks.py"))
    assert _listed(provider=True) - sent - implied == set()


def _listed(*, provider: bool) -> set[str]:
    """The actions of Pulumi's provider, or those of gpuctl's own calls."""
    needs = [need for need in NEEDS if bool(need.resource_type) == provider]
    return {action for need in needs for action in need.actions}


def _called_by(kind: type) -> set[str]:
    path = ROOT / (kind.__module__.replace(".", "/") + ".py")
    (found,) = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    ]
    return {node.attr for node in ast.walk(found) if isinstance(node, ast.Attribute)}


def test_every_change_has_its_resource_types() -> None:
    changes = {action for action in needed() if is_change(action)}
    assert needed() - changes == {
        action for action in needed() if re.search(":(Describe|Get|List|Simulate)", action)
    }
    assert {action for action in ACTION_SCOPES if is_change(action)} == changes


def test_a_cluster_needs_only_the_actions_of_what_it_has() -> None:
    file = {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge"}
    plain = Cluster.model_validate(file)
    assert features_of(plain) == {"network"}
    with_all = Cluster.model_validate(
        {
            **file,
            "network": {"access": "ssm"},
            "storage": {"shared": {"type": "efs"}},
            "capacity": {"type": "spot"},
        }
    )
    assert features_of(with_all) == {"network", "ssm", "role", "efs", "spot"}
    more = needed(["up"], features_of(with_all)) - needed(["up"], features_of(plain))
    assert {action.partition(":")[0] for action in more} == {
        "iam", "ssm", "elasticfilesystem", "ec2"
    }  # fmt: skip
    assert needed(["up"], features_of(plain)) < needed(["up"])


def test_optional_actions_are_those_without_which_commands_go_on() -> None:
    assert set(optional(needed())) == {
        "ec2:DeleteVpcEndpoints",
        "ec2:DescribeInstanceTopology",
        "ec2:DescribeVpcEndpoints",
        "ec2:PurchaseCapacityBlock",
        "elasticfilesystem:DescribeFileSystems",
        "fsx:DescribeFileSystems",
        "iam:ListInstanceProfiles",
        "iam:ListRoles",
        "iam:SimulatePrincipalPolicy",
        "pricing:GetProducts",
        "servicequotas:GetServiceQuota",
        "servicequotas:ListServiceQuotas",
    }


# The policy


@pytest.mark.parametrize("command", ["all", *COMMANDS])
def test_a_policy_is_as_reviewed(command: str) -> None:
    actions = needed() if command == "all" else needed([command])
    document = policy(actions)
    golden.check(GOLDEN / f"{command}.json", f"{json.dumps(document, indent=2)}\n")
    allowed = {one for statement in document["Statement"] for one in statement["Action"]}
    plugin = {*OWN_SESSIONS, OPEN_CHANNEL} if "ssm:StartSession" in actions else set[str]()
    assert allowed == actions | plugin


def test_a_policy_keeps_iams_limit() -> None:
    whole = policy(needed())
    parts = split(whole)
    assert all(size(part) <= LIMIT for part in parts)
    assert [one for part in parts for one in part["Statement"]] == whole["Statement"]
    long = {**whole, "Statement": whole["Statement"] * 2}
    assert [size(part) <= LIMIT for part in split(long)] == [True] * len(split(long))
    assert [one for part in split(long) for one in part["Statement"]] == long["Statement"]


# The check, against the lab's IAM


@pytest.fixture
def allow(empty_region: Target) -> Any:
    """A function that binds the lab's credentials to a policy of these actions.

    The account has gpuctl's boundary.
    """
    state = empty_region.state.parents[1]
    create_boundary(empty_region)

    def bind(actions: frozenset[str]) -> None:
        file = state / "policy.json"
        file.write_text(json.dumps(policy(actions)))
        fault_table.write(
            state / "faults.json", {"policy": fault_kinds.parse("policy", (str(file),))}
        )

    return bind


def test_whatever_action_is_taken_away_is_named(empty_region: Target, allow: Any) -> None:
    whole = needed()
    allow(whole)
    assert missing_permissions(empty_region, ME, whole, BOUND) == Missing()
    unnoticed = []
    for action in sorted(whole - {"iam:SimulatePrincipalPolicy"}):
        allow(whole - {action})
        found = missing_permissions(empty_region, ME, [action], BOUND)
        if found != without(action):
            unnoticed.append((action, found))
    assert unnoticed == []
    allow(whole - {"ec2:TerminateInstances", "pricing:GetProducts"})
    assert missing_permissions(empty_region, ME, whole, BOUND) == Missing(
        required=("ec2:TerminateInstances",),
        warnings=("pricing:GetProducts is not allowed: prices are the catalogue's",),
    )


def without(action: str) -> Missing:
    """What is found where this action alone is not allowed."""
    if why := optional({action}):
        return Missing(warnings=(f"{action} is not allowed: {why[action]}",))
    return Missing(required=(action,))


def test_missing_actions_end_the_command_and_what_to_do_is_said() -> None:
    Missing(warnings=("one",)).check()
    with pytest.raises(InputError) as caught:
        Missing(required=("ec2:CreateVpc", "ec2:DeleteVpc")).check()
    assert str(caught.value) == (
        "the credentials do not allow ec2:CreateVpc, ec2:DeleteVpc; `gpuctl iam-policy` prints a"
        " policy that does"
    )


def test_without_the_permission_to_simulate_nothing_is_known(
    empty_region: Target, allow: Any
) -> None:
    allow(needed() - {"iam:SimulatePrincipalPolicy", "ec2:CreateVpc"})
    with pytest.raises(CloudError) as caught:
        missing_permissions(empty_region, ME, needed())
    assert caught.value.code == "AccessDenied"


def test_the_role_of_a_session_is_what_is_simulated(
    empty_region: Target, answer_calls: Callable[[Answer], None]
) -> None:
    asked: list[str] = []
    role = "arn:aws:iam::123456789012:role/aws-reserved/sso.amazonaws.com/Admin"

    def answer(call: ApiCall) -> Any:
        if call.operation == "GetRole":
            return {"Role": {"Arn": f"{role}-{call.request['RoleName']}"}}
        assert call.operation == "SimulatePrincipalPolicy"
        asked.append(call.request["PolicySourceArn"])
        return {"EvaluationResults": []}

    answer_calls(answer)
    session = Caller("123456789012", "arn:aws:sts::123456789012:assumed-role/Power/me@x.org")
    missing_permissions(empty_region, session, ["ec2:CreateVpc"])
    assert asked == [f"{role}-Power"]
    assert list(
        _by_resource(
            "cn-north-1",
            Caller("1", "arn:aws-cn:iam::1:user/me"),
            ["ec2:CreateVpc", "ec2:DeleteVpc"],
        )
    ) == ["arn:aws-cn:ec2:cn-north-1:1:vpc/00000000000000000"]
    root = Caller("123456789012", "arn:aws:iam::123456789012:root")
    assert missing_permissions(empty_region, root, ["ec2:CreateVpc"]) == Missing()
    assert len(asked) == 1


# The commands


def test_a_plan_ends_before_anything_is_made_with_what_is_missing(
    empty_region: Target, allow: Any
) -> None:
    file = {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge"}
    allow(needed() - {"ec2:TerminateInstances", "ec2:DeleteVpc", "fsx:DeleteFileSystem"})
    with pytest.raises(InputError) as caught:
        resolve(Cluster.model_validate(file), ClusterStore(empty_region))
    assert str(caught.value) == (
        "the credentials do not allow ec2:DeleteVpc, ec2:TerminateInstances; `gpuctl iam-policy`"
        " prints a policy that does"
    )
    allow(needed() - {"iam:SimulatePrincipalPolicy"})
    assert resolve(Cluster.model_validate(file), ClusterStore(empty_region)).warnings == (
        "the permissions could not be checked (AccessDenied: allow iam:SimulatePrincipalPolicy)",
    )


def test_doctor_says_what_is_missing(empty_region: Target, allow: Any) -> None:
    here: Any = SimpleNamespace(is_lab_down=lambda: False, target=lambda: empty_region)
    remedy = "`gpuctl iam-policy` prints a policy that allows them"
    assert list(doctor_permissions(here)) == [Check("permissions", "all that every cluster needs")]
    allow(needed() - {"ec2:CreateVpc", "iam:CreateRole", "pricing:GetProducts"})
    assert list(doctor_permissions(here)) == [
        Check("permissions", "missing: ec2:CreateVpc", remedy),
        Check(
            "permissions",
            "missing for Session Manager, shared storage or spot: iam:CreateRole",
            remedy,
            needed=False,
        ),
        Check(
            "permissions",
            "pricing:GetProducts is not allowed: prices are the catalogue's",
            remedy,
            needed=False,
        ),
    ]
    allow(needed())
    administrator(empty_region, "iam").delete_policy(PolicyArn=BOUND.boundary)
    assert list(doctor_permissions(here)) == [
        Check("permissions", "all that every cluster needs"),
        Check(
            "permissions",
            "missing for Session Manager: the credentials allow iam:CreateRole,"
            " iam:PutRolePermissionsBoundary, iam:PutRolePolicy, iam:UpdateAssumeRolePolicy only"
            " for roles with the permissions boundary gpuctl-boundary, and the account has no such"
            " policy",
            CREATE,
            needed=False,
        ),
    ]
    create_boundary(empty_region)
    allow(needed() - {"iam:SimulatePrincipalPolicy"})
    (unknown,) = doctor_permissions(here)
    assert (unknown.remedy, unknown.needed) == ("allow iam:SimulatePrincipalPolicy", False)
    assert unknown.seen.startswith(
        "not known: AWS refused SimulatePrincipalPolicy: AccessDenied: User: arn:aws:sts::"
    )


def test_the_check_can_be_left_out_and_the_owner_can_have_another_name(
    empty_region: Target, allow: Any
) -> None:
    cluster = Cluster.model_validate({"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge"})
    allow(needed() - {"ec2:TerminateInstances"})
    found = resolve(
        cluster, ClusterStore(replace(empty_region, check_permissions=False, owner="team <a>"))
    )
    assert found.tags["gpuctl:owner"] == "team _a_"


@pytest.mark.parametrize(
    ("kept", "missing"),
    [
        ((), "ec2:DeleteVpc, ec2:TerminateInstances"),
        (("ec2:DeleteVpc",), "ec2:TerminateInstances"),
    ],
)
def test_a_removal_ends_before_anything_is_removed_with_what_is_missing(
    kept: tuple[str, ...], missing: str, empty_region: Target, allow: Any
) -> None:
    make_cluster(
        client(empty_region, "ec2"), image_id(client(empty_region, "ssm"), BASTION_IMAGE), "demo"
    )
    before = [resource.id for resource in find_all(empty_region, "demo")]
    taken = {"ec2:TerminateInstances", "ec2:DeleteVpc", "fsx:DeleteFileSystem"} - set(kept)
    allow(needed() - taken)
    reports: list[Progress] = []
    with pytest.raises(InputError) as caught:
        down("demo", empty_region, reports.append)
    assert str(caught.value) == (
        f"the credentials do not allow {missing}; `gpuctl iam-policy` prints a policy that does"
    )
    assert reports == []
    assert [resource.id for resource in find_all(empty_region, "demo")] == before


def test_a_removal_needs_no_permission_for_what_the_cluster_has_not(
    empty_region: Target, allow: Any, without_engine: None
) -> None:
    """Where nobody may ask IAM, the requests themselves report what is missing."""
    unneeded = {"fsx:DeleteFileSystem", "iam:DeleteRole", "elasticfilesystem:DeleteFileSystem"}
    image = image_id(client(empty_region, "ssm"), BASTION_IMAGE)
    make_cluster(client(empty_region, "ec2"), image, "demo")
    allow(needed() - {"iam:SimulatePrincipalPolicy", "ec2:DeleteVpc"})
    with pytest.raises(CloudError, match="ec2:DeleteVpc"):
        down("demo", empty_region, silent)
    allow(needed() - {"ec2:DeleteVpc"})
    with pytest.raises(CloudError, match="ec2:DeleteVpc"):
        down("demo", replace(empty_region, check_permissions=False), silent)
    allow(needed() - unneeded)
    assert down("demo", empty_region, silent).removed
    assert find_all(empty_region, "demo") == []
