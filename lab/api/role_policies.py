"""The permissions of the account's roles: their policies, and the boundary that limits them."""

from typing import Any

from lab.authorization.policy import Policy, Ruling, decide, read_policy


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
