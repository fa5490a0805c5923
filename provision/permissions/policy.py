"""The least IAM policy for a set of actions.

Changes are limited to resources with the tag of gpuctl's clusters, and creations to requests that
set it, as far as the Service Authorization Reference has condition keys for them
(config/catalogue/iam_actions.py).

The roles that gpuctl creates have a permissions boundary, the most that they may do. With a
boundary, the right to create roles is not the right to become an administrator. AWS allows an
action only if the role's policies and its boundary both allow it ("Permissions boundaries for IAM
entities", IAM User Guide,
https://docs.aws.amazon.com/IAM/latest/UserGuide/access_policies_boundaries.html, 2026-11-26).
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from config.bucket import ACTIONS, Bucket
from config.catalogue.iam_actions import (
    ACTION_SCOPES,
    LINKED_ROLES,
    POLICY,
    is_change,
    resource_arn,
)
from config.cluster.resolved import CLUSTER_TAG
from config.command_text import command_text
from config.target import Target
from provision.aws.account import Caller
from provision.aws.clients import call_unless_gone, client

BOUNDARY = "gpuctl-boundary"
"""The name of the managed policy that an administrator creates once per account."""

_COMMAND = "aws iam create-policy --policy-name {} --policy-document file://boundary.json"
CREATE = (
    f"`gpuctl iam-policy --boundary > boundary.json` prints it, and an administrator creates it"
    f" once: {command_text(_COMMAND, BOUNDARY)}"
)
"""The remedy if the account has no boundary."""


def boundary_document() -> dict[str, Any]:
    """Return the boundary as a policy document: what Session Manager's agent needs, and no more."""
    return POLICY


def boundary_arn(who: Caller) -> str:
    """Return the ARN that the boundary has in the caller's account."""
    return f"arn:{who.arn.split(':')[1]}:iam::{who.account}:policy/{BOUNDARY}"


def find_boundary(target: Target, who: Caller) -> str:
    """Return the ARN of the account's boundary, empty if it has none; CloudError if AWS refuses."""
    iam, arn = client(target, "iam"), boundary_arn(who)
    policy = call_unless_gone(lambda: iam.get_policy(PolicyArn=arn), ("NoSuchEntity",))
    return arn if policy else ""


LIMIT = 6144
"""The most characters of a managed policy, without white space ("IAM and AWS STS quotas",
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html, 2026-11-23)."""

Statement = dict[str, Any]
Conditions = dict[str, dict[str, Any]]

TAGGED: Conditions = {"StringLike": {f"aws:ResourceTag/{CLUSTER_TAG}": "*"}}
TAGGING: Conditions = {"StringLike": {f"aws:RequestTag/{CLUSTER_TAG}": "*"}}
_GUARDDUTY: Conditions = {"StringEquals": {"aws:ResourceTag/GuardDutyManaged": "true"}}
_ROLES = [resource_arn("iam", kind, "gpuctl/*") for kind in ("role", "instance-profile")]
_BOUNDED: Conditions = {
    "ArnLike": {"iam:PermissionsBoundary": resource_arn("iam", "policy", BOUNDARY)}
}
_EFS_TAG = "elasticfilesystem:TagResource"

SESSION_DOCUMENT = "AWS-StartSSHSession"

OWN_SESSIONS = frozenset({"ssm:ResumeSession", "ssm:TerminateSession"})
OPEN_CHANNEL = "ssmmessages:OpenDataChannel"
"""What AWS's plugin does with a session that the user has started, and not gpuctl: it resumes one
whose connection broke, and ends one. No simulation knows whose a session is, so gpuctl does not ask
for these beforehand. Sources, 2026-11-26: Systems Manager User Guide, "Additional sample IAM
policies for Session Manager", example 4
(https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-restrict-access-examples.html),
and, for the channel of AWS-StartSSHSession, "Allow and control permissions for SSH connections
through Session Manager"
(https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-getting-started-enable-ssh-connections.html)."""
_OWN_SESSION: Conditions = {
    "StringLike": {"ssm:resourceTag/aws:ssmmessages:session-id": "${aws:userid}"}
}
_OWN_CHANNELS = [f"arn:*:ssm:*:*:session/${{aws:{name}}}-*" for name in ("userid", "username")]
"""A session's name begins with that of its user; AWS's examples have the first form alone."""


def policy(
    actions: Iterable[str], bucket: Bucket | None = None, profile: str | None = None
) -> Statement:
    """Return the policy document that allows the actions, the use of the bucket, and no others.

    `profile` is the instance profile that nodes get, if an administrator made it. Its role has the
    same name, as AWS's console gives it, with any path.
    """
    statements = [
        statement for statement in _statements(frozenset(actions), profile) if statement["Action"]
    ]
    statements += _of_bucket(bucket) if bucket else ()
    return {"Version": "2012-10-17", "Statement": statements}


def split(document: Statement) -> tuple[Statement, ...]:
    """Return the document in as few parts as IAM's limit requires; each is a policy."""
    parts: list[list[Statement]] = [[]]
    for statement in document["Statement"]:
        if parts[-1] and size({**document, "Statement": [*parts[-1], statement]}) > LIMIT:
            parts.append([])
        parts[-1].append(statement)
    return tuple({**document, "Statement": part} for part in parts)


def size(document: Statement) -> int:
    """Return the characters that count for IAM's limit."""
    return len(json.dumps(document, separators=(",", ":")))


def _statements(actions: frozenset[str], profile: str | None) -> Iterator[Statement]:
    yield _allow("Read", {action for action in actions if not is_change(action)}, "*")
    session = actions & {"ssm:StartSession"}
    yield from _ours(actions - session)
    yield from _used(actions)
    yield from _identities(actions, profile)
    yield _allow("Session", session, resource_arn("ec2", "instance"), TAGGED)
    if session:
        document = resource_arn("ssm", "document", SESSION_DOCUMENT)
        yield _allow("SessionDocument", session, document)
        yield _allow("OwnSessions", OWN_SESSIONS, resource_arn("ssm", "session"), _OWN_SESSION)
        yield _allow("OwnChannels", {OPEN_CHANNEL}, _OWN_CHANNELS)


def _ours(actions: frozenset[str]) -> Iterator[Statement]:
    """Yield what makes and changes resources with gpuctl's tag."""
    scopes = {action: ACTION_SCOPES[action] for action in actions if action in ACTION_SCOPES}
    makes = {action for action, scope in scopes.items() if scope.makes}
    yield _allow("Make", makes, "*", TAGGING)
    yield _allow("MakeTags", actions & {"ec2:CreateTags"}, "*", _while_creating("ec2"))
    yield _allow("MakeEfsTags", actions & {_EFS_TAG}, "*", _while_creating("elasticfilesystem"))
    changes = {action for action, scope in scopes.items() if scope.changes}
    yield _allow("Change", changes, "*", TAGGED)


def _used(actions: frozenset[str]) -> Iterator[Statement]:
    """Yield what uses or removes resources without gpuctl's tag."""
    for action in sorted(actions):
        service, _, name = action.partition(":")
        if service == "ec2" and (scope := ACTION_SCOPES.get(action)) and scope.uses:
            arns = [resource_arn(service, kind) for kind in scope.uses]
            yield _allow(f"{name}With", {action}, arns)
    guardduty = actions & {"ec2:DeleteVpcEndpoints", "ec2:DeleteSecurityGroup"}
    if len(guardduty) == 2:
        yield _allow("GuardDuty", guardduty, "*", _GUARDDUTY)
    # EFS removes a mount target's interface, which has no tag, for the caller.
    if "elasticfilesystem:DeleteMountTarget" in actions:
        interface = actions & {"ec2:DeleteNetworkInterface"}
        yield _allow("EfsInterface", interface, resource_arn("ec2", "network-interface"))


def _while_creating(service: str) -> Conditions:
    """Return the condition that the tags are those of a creation."""
    return {"Null": {f"{service}:CreateAction": "false"}}


def _of_bucket(bucket: Bucket) -> Iterator[Statement]:
    """Yield what gpuctl and Pulumi's engine do in a team's bucket."""
    lists = {"s3:ListBucket"}
    arn = f"arn:*:s3:::{bucket.name}"
    yield _allow("Bucket", lists, arn)
    yield _allow("Objects", set(ACTIONS) - lists, f"{arn}/{bucket.prefix}/*".replace("//", "/"))


def _identities(actions: frozenset[str], profile: str | None) -> Iterator[Statement]:
    """Yield the statements about roles: to create them within the boundary, and to pass them."""
    scopes = {action: ACTION_SCOPES[action] for action in actions if action in ACTION_SCOPES}
    bounded = {action for action, scope in scopes.items() if scope.bounded}
    yield _allow("BoundedRoles", bounded, _ROLES[0], _BOUNDED)
    roles = {action for action, scope in scopes.items() if scope.roles}
    yield _allow("Roles", roles - bounded, _ROLES)
    to_ec2: Conditions = {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    named = [resource_arn("iam", "role", f"{path}{profile}") for path in ("", "*/")]
    passed = named if profile else _ROLES[0]
    yield _allow("PassRole", actions & {"iam:PassRole"}, passed, to_ec2)
    linked = [
        resource_arn("iam", "role", f"aws-service-role/{service}.amazonaws.com/*")
        for service in LINKED_ROLES
    ]
    yield _allow("LinkedRoles", actions & {"iam:CreateServiceLinkedRole"}, linked)


def _allow(
    sid: str, actions: Iterable[str], resource: str | list[str], condition: Conditions | None = None
) -> Statement:
    statement: Statement = {
        "Sid": sid,
        "Effect": "Allow",
        "Action": sorted(actions),
        "Resource": resource,
    }
    return statement if condition is None else {**statement, "Condition": condition}
