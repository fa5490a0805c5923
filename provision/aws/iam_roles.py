"""Roles and instance profiles of clusters. IAM has no regions, and can filter only by path."""

from collections.abc import Callable, Sequence
from typing import Any

from config.target import Target
from provision.aws.clients import aws_errors, call_unless_gone, client


def identities(target: Target, operation: str) -> list[Any]:
    """Return all roles or instance profiles of gpuctl in the target's region.

    `operation` is `list_roles` or `list_instance_profiles`. IAM lists them without tags, so each is
    requested by name.
    """
    iam, path = client(target, "iam"), f"/gpuctl/{target.region}/"
    answer, name, describe = (
        ("Roles", "RoleName", _role)
        if operation == "list_roles"
        else ("InstanceProfiles", "InstanceProfileName", _profile)
    )
    with aws_errors():
        pages = iam.get_paginator(operation).paginate(PathPrefix=path)
        listed = list(pages.search(f"{answer}[]"))
    # moto 5.2 ignores the prefix for instance profiles.
    described = [describe(iam, role[name]) for role in listed if role["Path"].startswith(path)]
    return [role for role in described if role is not None]


def delete_identities(target: Target, names: Sequence[str], are_roles: bool) -> None:
    """Delete the roles of these names, or the instance profiles unless `are_roles`."""
    iam = client(target, "iam")
    for name in names:
        (_delete_role if are_roles else _delete_instance_profile)(iam, name)


def _delete_role(iam: Any, name: str) -> None:
    """Remove the role's policies, then the role: IAM refuses otherwise (DeleteConflict)."""
    attached = _call_unless_gone(
        lambda: iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]
    )
    for policy in attached or ():
        arn = policy["PolicyArn"]
        _call_unless_gone(lambda arn=arn: iam.detach_role_policy(RoleName=name, PolicyArn=arn))  # type: ignore[misc]
    for own in (
        _call_unless_gone(lambda: iam.list_role_policies(RoleName=name)["PolicyNames"]) or ()
    ):
        _call_unless_gone(lambda own=own: iam.delete_role_policy(RoleName=name, PolicyName=own))  # type: ignore[misc]
    _call_unless_gone(lambda: iam.delete_role(RoleName=name))


def _delete_instance_profile(iam: Any, name: str) -> None:
    """Remove the role from the profile, then delete the profile; keep the role."""
    for role in (_profile(iam, name) or {}).get("Roles", ()):
        role_name = role["RoleName"]
        _call_unless_gone(
            lambda role_name=role_name: iam.remove_role_from_instance_profile(  # type: ignore[misc]
                InstanceProfileName=name, RoleName=role_name
            )
        )
    _call_unless_gone(lambda: iam.delete_instance_profile(InstanceProfileName=name))


def _role(iam: Any, name: str) -> Any:
    return _call_unless_gone(lambda: iam.get_role(RoleName=name)["Role"])


def _profile(iam: Any, name: str) -> Any:
    return _call_unless_gone(
        lambda: iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    )


def _call_unless_gone(ask: Callable[[], Any]) -> Any:
    return call_unless_gone(ask, ("NoSuchEntity", "NoSuchEntityException"))
