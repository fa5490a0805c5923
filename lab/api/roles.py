"""The roles of the account: sessions of them, and their permissions."""

from collections.abc import Mapping
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from lab.access_key import AccessKey
from lab.authorization.policy import Policy, Ruling, decide, read_policy


def session_of(environ: Mapping[str, Any]) -> Any:
    """Return moto's session whose key signed the request; None for another key."""
    header = str(environ.get("HTTP_AUTHORIZATION", ""))
    key_id = header.partition("Credential=")[2].partition("/")[0]
    return sts_backends[DEFAULT_ACCOUNT_ID]["aws"].get_assumed_role_from_access_key(key_id)


def key_of(session: Any) -> AccessKey:
    """Return the key with which the session's requests are signed."""
    return AccessKey(session.access_key_id, session.secret_access_key)


def role_of(session: Any) -> Any:
    """Return moto's role of the session; None if it was removed."""
    roles = iam_backends[DEFAULT_ACCOUNT_ID]["aws"].roles
    return next((role for role in list(roles.values()) if role.arn == session.role_arn), None)


def role_ruling(iam: Any, role: Any, action: str, resource: str = "*") -> Ruling:
    """Return IAM's decision about an action of the role; `iam` is moto's backend."""
    return decide(*permissions(iam, role), action, resource, {})


def permissions(iam: Any, role: Any) -> tuple[Policy, Policy | None]:
    """Return the role's policies as one, and its boundary, None if it has none."""
    documents = [*role.policies.values(), *map(_document, role.managed_policies.values())]
    policy = Policy(
        tuple(statement for text in documents for statement in read_policy(text).statements)
    )
    arn = role.permissions_boundary_arn
    # IAM does not delete a policy that is a boundary; moto does. Then the role may do nothing.
    known = iam.managed_policies.get(arn)
    boundary = read_policy(_document(known)) if known else Policy(())
    return policy, boundary if arn else None


def _document(policy: Any) -> str:
    """Return the text of a managed policy's default version."""
    return str(next(version.document for version in policy.versions if version.is_default))
