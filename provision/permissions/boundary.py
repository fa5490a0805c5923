"""The permissions boundary of the roles that gpuctl creates: the most that such a role may do.

With a boundary, the right to create roles is not the right to become an administrator. AWS allows
an action only if the role's policies and its boundary both allow it ("Permissions boundaries for
IAM entities", IAM User Guide,
https://docs.aws.amazon.com/IAM/latest/UserGuide/access_policies_boundaries.html, 2026-11-26).
"""

from typing import Any

from config.catalogue.session_manager import POLICY
from config.target import Target
from provision.aws.account import Caller
from provision.aws.clients import call_unless_gone, client

BOUNDARY = "gpuctl-boundary"
"""The name of the managed policy that an administrator creates once per account."""

CREATE = (
    f"`gpuctl iam-policy --boundary > boundary.json` prints it, and an administrator creates it"
    f" once: `aws iam create-policy --policy-name {BOUNDARY}"
    " --policy-document file://boundary.json`"
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
