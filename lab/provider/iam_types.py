"""Roles and instance profiles, which grant an instance its permissions in AWS."""

import json
from typing import Any

from lab.provider.resource import Resource, aws_tags, first, tags_of
from lab.provider.values import Properties


class Role(Resource):
    """`aws.iam.Role`."""

    token = "aws:iam/role:Role"  # noqa: S105 Pulumi's word for a type's name
    title = "IAM Role"
    removal = ("delete_role", "RoleName")
    service = "iam"
    required = frozenset({"assumeRolePolicy"})
    replacing = frozenset({"name", "path"})
    updating = frozenset({"assumeRolePolicy", "description", "permissionsBoundary", "tags"})
    computed = frozenset({"arn", "uniqueId"})

    def create(self, inputs: Properties) -> str:
        """Create the role; its id is its name."""
        boundary = inputs.get("permissionsBoundary")
        self.aws.create_role(
            RoleName=inputs["name"],
            Path=inputs.get("path", "/"),
            Description=inputs.get("description", ""),
            AssumeRolePolicyDocument=inputs["assumeRolePolicy"],
            Tags=aws_tags(inputs.get("tags") or {}),
            **({"PermissionsBoundary": boundary} if boundary else {}),
        )
        return str(inputs["name"])

    def describe(self, resource_id: str) -> Any | None:
        """Return IAM's description of the role."""
        return first(lambda: [self.aws.get_role(RoleName=resource_id)["Role"]])

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return what IAM says of the role; an equal policy keeps the text of `state`."""
        policy, known = actual["AssumeRolePolicyDocument"], state.get("assumeRolePolicy", "null")
        return {
            "arn": actual["Arn"],
            "assumeRolePolicy": known if json.loads(known) == policy else json.dumps(policy),
            "description": actual.get("Description", ""),
            "name": actual["RoleName"],
            "path": actual["Path"],
            "permissionsBoundary": actual.get("PermissionsBoundary", {}).get(
                "PermissionsBoundaryArn"
            ),
            "uniqueId": actual["RoleId"],
            "tags": tags_of(actual),
        }

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Change policy, description, boundary and tags; gpuctl removes no boundary."""
        if state.get("assumeRolePolicy") != inputs["assumeRolePolicy"]:
            self.aws.update_assume_role_policy(
                RoleName=resource_id, PolicyDocument=inputs["assumeRolePolicy"]
            )
        if (text := inputs.get("description", "")) != state.get("description"):
            self.aws.update_role_description(RoleName=resource_id, Description=text)
        boundary = inputs.get("permissionsBoundary")
        if boundary and boundary != state.get("permissionsBoundary"):
            self.aws.put_role_permissions_boundary(
                RoleName=resource_id, PermissionsBoundary=boundary
            )
        old, new = state.get("tags") or {}, inputs.get("tags") or {}
        if gone := sorted(set(old) - set(new)):
            self.aws.untag_role(RoleName=resource_id, TagKeys=gone)
        if old != new:
            self.aws.tag_role(RoleName=resource_id, Tags=aws_tags(new))


class RolePolicy(Resource):
    """`aws.iam.RolePolicy`: an inline policy of a role."""

    token = "aws:iam/rolePolicy:RolePolicy"  # noqa: S105
    title = "IAM Role Policy"
    service = "iam"
    required = frozenset({"policy", "role"})
    replacing = frozenset({"name", "role"})
    updating = frozenset({"policy"})

    def create(self, inputs: Properties) -> str:
        """Add the policy to the role."""
        self._put(inputs)
        return f"{inputs['role']}:{inputs['name']}"

    def describe(self, resource_id: str) -> Any | None:
        """Return the policy, whose text stays that of the state; None if the role lacks it."""
        role, _, name = resource_id.partition(":")
        return first(lambda: [self.aws.get_role_policy(RoleName=role, PolicyName=name)])

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Replace the policy's text."""
        self._put(inputs)

    def delete(self, resource_id: str, state: Properties) -> None:
        """Delete the policy from the role."""
        self.aws.delete_role_policy(RoleName=state["role"], PolicyName=state["name"])

    def _put(self, inputs: Properties) -> None:
        self.aws.put_role_policy(
            RoleName=inputs["role"], PolicyName=inputs["name"], PolicyDocument=inputs["policy"]
        )


class InstanceProfile(Resource):
    """`aws.iam.InstanceProfile`: the container that assigns a role to an instance."""

    token = "aws:iam/instanceProfile:InstanceProfile"  # noqa: S105
    title = "IAM Instance Profile"
    service = "iam"
    replacing = frozenset({"name", "path"})
    updating = frozenset({"role", "tags"})
    computed = frozenset({"arn", "uniqueId"})

    def create(self, inputs: Properties) -> str:
        """Create the profile without a role; its id is its name."""
        self.aws.create_instance_profile(
            InstanceProfileName=inputs["name"],
            Path=inputs.get("path", "/"),
            Tags=aws_tags(inputs.get("tags") or {}),
        )
        return str(inputs["name"])

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Add the role."""
        if role := inputs.get("role"):
            self.aws.add_role_to_instance_profile(InstanceProfileName=resource_id, RoleName=role)

    def describe(self, resource_id: str) -> Any | None:
        """Return IAM's description of the profile."""
        get = self.aws.get_instance_profile
        return first(lambda: [get(InstanceProfileName=resource_id)["InstanceProfile"]])

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return the profile's name and role."""
        roles = [role["RoleName"] for role in actual["Roles"]]
        return {
            "arn": actual["Arn"],
            "name": actual["InstanceProfileName"],
            "path": actual["Path"],
            "role": roles[0] if roles else None,
            "uniqueId": actual["InstanceProfileId"],
            "tags": tags_of(actual),
        }

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Change the role and the tags."""
        if state.get("role") != inputs.get("role"):
            self._remove_role(resource_id, state)
            self.complete(resource_id, inputs)
        old, new = state.get("tags") or {}, inputs.get("tags") or {}
        if gone := sorted(set(old) - set(new)):
            self.aws.untag_instance_profile(InstanceProfileName=resource_id, TagKeys=gone)
        self.aws.tag_instance_profile(InstanceProfileName=resource_id, Tags=aws_tags(new))

    def delete(self, resource_id: str, state: Properties) -> None:
        """Delete the profile; its role remains."""
        self._remove_role(resource_id, self.read(resource_id, state) or {})
        self.aws.delete_instance_profile(InstanceProfileName=resource_id)

    def _remove_role(self, resource_id: str, state: Properties) -> None:
        if role := state.get("role"):
            self.aws.remove_role_from_instance_profile(
                InstanceProfileName=resource_id, RoleName=role
            )
