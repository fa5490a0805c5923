"""The check that the credentials have the permissions that a command needs, before it begins.

IAM simulates the policies of the caller (iam:SimulatePrincipalPolicy). The simulation knows the
policies of the user or role, its boundary and, without their conditions, those of the organization;
it does not know session policies (IAM API reference, 2026-11-23).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from config.catalogue.ec2_actions import EC2_ACTIONS
from config.cluster.resolved import CLUSTER_TAG
from config.errors import CloudError, InputError
from config.target import Target
from provision.aws.account import Caller
from provision.aws.clients import DENIED, aws_errors, client
from provision.permissions.actions import optional

_ASSUMED = re.compile(r"arn:([^:]+):sts::(\d+):assumed-role/([^/]+)/.*")
_NO_ID = "0" * 17
_TAGS = ("aws:RequestTag", "aws:ResourceTag")


@dataclass(frozen=True)
class Missing:
    """The actions that the credentials do not allow.

    `warnings` is about optional ones; each says what gpuctl does without the action.
    """

    required: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise InputError if required actions are missing."""
        if self.required:
            raise InputError(
                f"the credentials do not allow {', '.join(self.required)}",
                "`gpuctl iam-policy` prints a policy that does",
            )


def missing_permissions(target: Target, who: Caller, actions: Iterable[str]) -> Missing:
    """Return which of the actions the caller's policies do not allow; nothing is created.

    Raises CloudError if the caller may not simulate policies, or if it is a role that AWS does not
    find by its name.
    """
    if who.arn.endswith(":root"):
        return Missing()  # IAM cannot simulate the root user, whom no policy limits
    principal, wanted = _principal(target, who), sorted(actions)
    denied = _denied(target, principal, wanted, {"*": wanted})
    # A policy can allow an action on some resources only.
    denied = _denied(target, principal, denied, _by_resource(target.region, who, denied))
    without = optional(denied)
    return Missing(
        tuple(action for action in denied if action not in without),
        tuple(f"{action} is not allowed: {why}" for action, why in sorted(without.items())),
    )


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
                    ContextEntries=list(_context(target.region)),
                )
                results = [one for page in pages for one in page["EvaluationResults"]]
            denied |= {one["EvalActionName"] for one in results if one["EvalDecision"] != "allowed"}
    return [action for action in actions if action in denied]


def _context(region: str) -> Iterator[dict[str, object]]:
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
    for key, value in values.items():
        yield {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}


def _by_resource(region: str, who: Caller, actions: Iterable[str]) -> dict[str, list[str]]:
    """Return the actions by an ARN of each resource that they need."""
    partition = who.arn.split(":")[1]
    found: dict[str, list[str]] = {}
    for action in actions:
        for arn in _arns(action, region, who.account):
            found.setdefault(arn.replace("arn:aws:", f"arn:{partition}:", 1), []).append(action)
    return found


def _arns(action: str, region: str, account: str) -> Iterator[str]:
    service, _, name = action.partition(":")
    if service == "ec2" and name in EC2_ACTIONS:
        kinds = EC2_ACTIONS[name]
        for kind in kinds.makes + kinds.changes + kinds.uses:
            owner = "" if kind in ("image", "snapshot") else account
            yield f"arn:aws:ec2:{region}:{owner}:{kind}/{_NO_ID}"
    elif action in ("ec2:CreateTags", "ec2:DeleteTags", "ssm:StartSession"):
        yield f"arn:aws:ec2:{region}:{account}:instance/i-{_NO_ID}"
    elif action == "iam:CreateServiceLinkedRole":
        yield f"arn:aws:iam::{account}:role/aws-service-role/spot.amazonaws.com/AWSServiceRole"
    elif service == "iam" and name not in ("ListRoles", "ListInstanceProfiles"):
        kind = "instance-profile" if name.endswith("InstanceProfile") else "role"
        yield f"arn:aws:iam::{account}:{kind}/gpuctl/{region}/gpuctl"
    elif service in ("elasticfilesystem", "fsx"):
        yield f"arn:aws:{service}:{region}:{account}:file-system/fs-{_NO_ID}"
    else:
        yield "*"
