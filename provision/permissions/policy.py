"""The least IAM policy for a set of actions.

Changes are limited to resources with the tag of gpuctl's clusters, and creations to requests that
set it, as far as the Service Authorization Reference has condition keys for them
(config/catalogue/ec2_actions.py, and the pages of EFS, FSx, IAM and Systems Manager, 2026-11-23).
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from config.bucket import ACTIONS, Bucket
from config.catalogue.ec2_actions import EC2_ACTIONS, Ec2Action
from config.cluster.resolved import CLUSTER_TAG
from provision.permissions.actions import is_change
from provision.permissions.boundary import BOUNDARY, BOUNDED

LIMIT = 6144
"""The most characters of a managed policy, without white space ("IAM and AWS STS quotas",
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html, 2026-11-23)."""

Statement = dict[str, Any]
Conditions = dict[str, dict[str, Any]]

TAGGED: Conditions = {"StringLike": {f"aws:ResourceTag/{CLUSTER_TAG}": "*"}}
TAGGING: Conditions = {"StringLike": {f"aws:RequestTag/{CLUSTER_TAG}": "*"}}
_GUARDDUTY: Conditions = {"StringEquals": {"aws:ResourceTag/GuardDutyManaged": "true"}}
_ROLES = ["arn:*:iam::*:role/gpuctl/*", "arn:*:iam::*:instance-profile/gpuctl/*"]
_BOUNDED: Conditions = {"ArnLike": {"iam:PermissionsBoundary": f"arn:*:iam::*:policy/{BOUNDARY}"}}
_LINKED = "arn:*:iam::*:role/aws-service-role/{}.amazonaws.com/*"
_FILES = ("elasticfilesystem:", "fsx:")
_EFS_TAG = "elasticfilesystem:TagResource"
_SERVICES = ("spot", "elasticfilesystem", "fsx")

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
    wanted = frozenset(actions)
    statements = [statement for statement in _statements(wanted, profile) if statement["Action"]]
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


def policy_text(document: Statement) -> str:
    """Return the document as people read it."""
    return json.dumps(document, indent=2)


def size(document: Statement) -> int:
    """Return the characters that count for IAM's limit."""
    return len(json.dumps(document, separators=(",", ":")))


def _statements(wanted: frozenset[str], profile: str | None) -> Iterator[Statement]:
    yield _allow("Read", {action for action in wanted if not is_change(action)}, "*")
    yield from _ours(wanted)
    yield from _used(wanted)
    yield from _identities(wanted, profile)
    yield _allow("Session", wanted & {"ssm:StartSession"}, _ec2_arn("instance"), TAGGED)
    if "ssm:StartSession" in wanted:
        document = f"arn:*:ssm:*:*:document/{SESSION_DOCUMENT}"
        yield _allow("SessionDocument", {"ssm:StartSession"}, document)
        yield _allow("OwnSessions", OWN_SESSIONS, "arn:*:ssm:*:*:session/*", _OWN_SESSION)
        yield _allow("OwnChannels", {OPEN_CHANNEL}, _OWN_CHANNELS)


def _ours(wanted: frozenset[str]) -> Iterator[Statement]:
    """Yield what makes and changes resources with gpuctl's tag."""
    makes = _of_ec2(wanted, lambda one: one.makes)
    changes = _of_ec2(wanted, lambda one: one.changes)
    tags = wanted & {"ec2:CreateTags", "ec2:DeleteTags"}
    files = {action for action in wanted if action.startswith(_FILES) and is_change(action)}
    made = {action for action in files if action.endswith(":CreateFileSystem")}
    # FSx has no key for the tags of a creation alone.
    yield _allow("Make", makes | made | files & {"fsx:TagResource"}, "*", TAGGING)
    yield _allow("MakeTags", tags & {"ec2:CreateTags"}, "*", _while_creating("ec2"))
    yield _allow("MakeEfsTags", files & {_EFS_TAG}, "*", _while_creating("elasticfilesystem"))
    yield _allow("Change", changes | tags | files - made, "*", TAGGED)


def _used(wanted: frozenset[str]) -> Iterator[Statement]:
    """Yield what uses or removes resources without gpuctl's tag."""
    for action in sorted(_of_ec2(wanted, lambda one: one.uses)):
        name = action.removeprefix("ec2:")
        arns = [_ec2_arn(kind) for kind in EC2_ACTIONS[name].uses]
        yield _allow(f"{name}With", {action}, arns)
    guardduty = wanted & {"ec2:DeleteVpcEndpoints", "ec2:DeleteSecurityGroup"}
    if len(guardduty) == 2:
        yield _allow("GuardDuty", guardduty, "*", _GUARDDUTY)
    # EFS removes a mount target's interface, which has no tag, for the caller.
    if "elasticfilesystem:DeleteMountTarget" in wanted:
        interface = wanted & {"ec2:DeleteNetworkInterface"}
        yield _allow("EfsInterface", interface, _ec2_arn("network-interface"))


def _of_ec2(wanted: frozenset[str], has: Callable[[Ec2Action], object]) -> set[str]:
    return {f"ec2:{name}" for name, kinds in EC2_ACTIONS.items() if has(kinds)} & wanted


def _while_creating(service: str) -> Conditions:
    """Return the condition that the tags are those of a creation."""
    return {"Null": {f"{service}:CreateAction": "false"}}


def _of_bucket(bucket: Bucket) -> Iterator[Statement]:
    """Yield what gpuctl and Pulumi's engine do in a team's bucket."""
    lists = {"s3:ListBucket"}
    arn = f"arn:*:s3:::{bucket.name}"
    yield _allow("Bucket", lists, arn)
    yield _allow("Objects", set(ACTIONS) - lists, f"{arn}/{bucket.prefix}/*".replace("//", "/"))


def _identities(wanted: frozenset[str], profile: str | None) -> Iterator[Statement]:
    """Yield the statements about roles: to create them within the boundary, and to pass them."""
    changes = {action for action in wanted if action.startswith("iam:") and is_change(action)}
    linked, passed = changes & {"iam:CreateServiceLinkedRole"}, changes & {"iam:PassRole"}
    yield _allow("BoundedRoles", changes & BOUNDED, _ROLES[0], _BOUNDED)
    yield _allow("Roles", changes - BOUNDED - linked - passed, _ROLES)
    to_ec2: Conditions = {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    named = [f"arn:*:iam::*:role/{profile}", f"arn:*:iam::*:role/*/{profile}"]
    yield _allow("PassRole", passed, named if profile else _ROLES[0], to_ec2)
    yield _allow("LinkedRoles", linked, [_LINKED.format(service) for service in _SERVICES])


def _ec2_arn(kind: str) -> str:
    account = "" if kind in ("image", "snapshot") else "*"
    return f"arn:*:ec2:*:{account}:{kind}/*"


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
