"""The check that the credentials have the permissions that a command needs, before it begins.

IAM simulates the policies of the caller (iam:SimulatePrincipalPolicy). The simulation knows the
policies of the user or role, its boundary and, without their conditions, those of the organization;
it does not know session policies (IAM API reference, 2026-11-23).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from config.catalogue.iam_actions import ACTION_SCOPES, ActionScope, resource_arn
from config.cluster.resolved import CLUSTER_TAG
from config.errors import CloudError, InputError
from config.target import Target
from provision.aws.account import Caller
from provision.aws.clients import DENIED, aws_errors, client
from provision.permissions.actions import optional
from provision.permissions.policy import BOUNDARY, CREATE, boundary_arn

_ASSUMED = re.compile(r"arn:([^:]+):sts::(\d+):assumed-role/([^/]+)/.*")
_NO_ID = "0" * 17
_TAGS = ("aws:RequestTag", "aws:ResourceTag")


@dataclass(frozen=True)
class Missing:
    """The actions that the credentials do not allow.

    `unbounded` are allowed only for roles with gpuctl's permissions boundary, which the account
    does not have. `warnings` is about optional ones; each says what gpuctl does without the action.
    """

    required: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unbounded: tuple[str, ...] = ()

    @property
    def without_boundary(self) -> str:
        """The message that the account has no boundary; empty if that is no problem."""
        if not self.unbounded:
            return ""
        return (
            f"the credentials allow {', '.join(self.unbounded)} only for roles with the permissions"
            f" boundary {BOUNDARY}, and the account has no such policy"
        )

    def check(self) -> None:
        """Raise InputError if required actions are missing."""
        if self.required:
            raise InputError(
                f"the credentials do not allow {', '.join(self.required)}",
                "`gpuctl iam-policy` prints a policy that does",
            )
        if self.unbounded:
            raise InputError(self.without_boundary, CREATE)


@dataclass(frozen=True)
class RoleOfNodes:
    """What exists of the nodes' permissions before a cluster is created; ARNs, empty for none.

    `boundary` is the account's boundary for roles that gpuctl creates, `role` is the role of the
    cluster file's own instance profile.
    """

    boundary: str = ""
    role: str = ""


def missing_permissions(
    target: Target, who: Caller, actions: Iterable[str], nodes: RoleOfNodes | None = None
) -> Missing:
    """Return which of the actions the caller's policies do not allow; nothing is created.

    Raises CloudError if the caller may not simulate policies, or if it is a role that AWS does not
    find by its name.
    """
    if who.arn.endswith(":root"):
        return Missing()  # IAM cannot simulate the root user, whom no policy limits
    nodes = nodes or RoleOfNodes()
    principal, named = _principal(target, who), sorted(actions)
    context = list(_context(target.region, nodes.boundary))
    denied = _denied(target, principal, named, {"*": named}, context)
    # A policy can allow an action on some resources only.
    resources = _by_resource(target.region, who, denied, nodes.role)
    denied = _denied(target, principal, denied, resources, context)
    without = optional(denied)
    required = [action for action in denied if action not in without]
    unbounded = _allowed_with_boundary(target, who, principal, required, nodes)
    return Missing(
        tuple(action for action in required if action not in unbounded),
        tuple(f"{action} is not allowed: {why}" for action, why in sorted(without.items())),
        unbounded,
    )


def _allowed_with_boundary(
    target: Target, who: Caller, principal: str, denied: Sequence[str], nodes: RoleOfNodes
) -> tuple[str, ...]:
    """Return those of the denied actions that the account's missing boundary would allow."""
    roles = [action for action in denied if _scope(action).bounded]
    if nodes.boundary or not roles:
        return ()
    context = list(_context(target.region, boundary_arn(who)))
    resources = _by_resource(target.region, who, roles, nodes.role)
    still = _denied(target, principal, roles, resources, context)
    return tuple(action for action in roles if action not in still)


def _principal(target: Target, who: Caller) -> str:
    """Return the ARN of the user or role; that of a session names its role without the path."""
    session = _ASSUMED.fullmatch(who.arn)
    if session is None:
        return who.arn.replace(":sts:", ":iam:")
    partition, account, name = session.groups()
    try:
        with aws_errors():
            return str(client(target, "iam").get_role(RoleName=name)["Role"]["Arn"])
    except CloudError as error:
        if error.code not in DENIED | {"NoSuchEntity"}:
            raise
    return f"arn:{partition}:iam::{account}:role/{name}"


def _denied(
    target: Target,
    principal: str,
    actions: Sequence[str],
    groups: Mapping[str, Sequence[str]],
    context: Sequence[Mapping[str, object]],
) -> list[str]:
    """Return those of the actions that are denied on a resource of `groups`, which has ARNs."""
    denied = set[str]()
    iam = client(target, "iam")
    for resource, named in groups.items():
        if named:
            with aws_errors():
                pages = iam.get_paginator("simulate_principal_policy").paginate(
                    PolicySourceArn=principal,
                    ActionNames=list(named),
                    ResourceArns=[resource],
                    ContextEntries=list(context),
                )
                results = [result for page in pages for result in page["EvaluationResults"]]
            denied |= {
                result["EvalActionName"]
                for result in results
                if result["EvalDecision"] != "allowed"
            }
    return [action for action in actions if action in denied]


def _context(region: str, boundary: str) -> Iterator[dict[str, object]]:
    """Yield the keys of gpuctl's requests: its tags, which are on all that it makes, and more."""
    values = {f"{key}/{CLUSTER_TAG}": "gpuctl" for key in _TAGS}
    values |= {
        "ec2:CreateAction": "RunInstances",
        "elasticfilesystem:CreateAction": "CreateFileSystem",
        "iam:PassedToService": "ec2.amazonaws.com",
        "aws:ResourceTag/GuardDutyManaged": "true",
        "aws:RequestedRegion": region,
        "ec2:Region": region,
    }
    if boundary:
        values["iam:PermissionsBoundary"] = boundary
    for key, value in values.items():
        yield {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}


def _by_resource(
    region: str, who: Caller, actions: Iterable[str], role: str = ""
) -> dict[str, list[str]]:
    """Return the actions by an ARN of each resource that they need."""
    arns: dict[str, list[str]] = {}
    for action in actions:
        passed = [role] if role and action == "iam:PassRole" else []
        for arn in passed or _arns(action, region, who):
            arns.setdefault(arn, []).append(action)
    return arns


def _arns(action: str, region: str, who: Caller) -> Iterator[str]:
    """Yield an ARN of each type that the action is about, `*` if it is about none."""
    service, scope = action.partition(":")[0], _scope(action)
    name = f"gpuctl/{region}/gpuctl" if service == "iam" else _NO_ID
    if action == "iam:CreateServiceLinkedRole":
        name = "aws-service-role/spot.amazonaws.com/AWSServiceRole"
    place = {"partition": who.arn.split(":")[1], "region": region, "account": who.account}
    for kind in scope.resources:
        yield resource_arn(service, kind, name, **place)
    if not scope.resources:
        yield "*"


def _scope(action: str) -> ActionScope:
    return ACTION_SCOPES.get(action, ActionScope())
