"""Placement groups, which moto lacks, with AWS's errors.

Source of codes and of the order of deletion: "Error codes for the Amazon EC2 API" and
DeletePlacementGroup's reference (read 2026-11-20).
"""

import secrets
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.utils import add_tag_specification, generic_filter

from lab.api.errors import Refusal


class PlacementGroup(TaggedEC2Resource):  # type: ignore[misc]  # moto is untyped here
    """A placement group; instances refer to it by name."""

    state = "available"

    def __init__(self, backend: Any, name: str, strategy: str, partitions: int | None) -> None:
        self.ec2_backend = backend
        self.id = f"pg-{secrets.token_hex(9)[:17]}"
        self.group_id = self.id
        self.group_name = name
        self.strategy = strategy
        self.partition_count = partitions
        self.group_arn = (
            f"arn:aws:ec2:{backend.region_name}:{backend.account_id}:placement-group/{name}"
        )


class PlacementGroups:
    """The region's placement groups; part of the lab's EC2 backend."""

    placement_groups: dict[str, PlacementGroup]

    def create_placement_group(
        self, name: str, strategy: str, partitions: int | None, tags: dict[str, str]
    ) -> PlacementGroup:
        """Create the group; InvalidPlacementGroup.Duplicate if it exists already."""
        if name in self.placement_groups:
            raise Refusal(
                "InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists."
            )
        group = PlacementGroup(self, name, strategy, partitions)
        group.add_tags(tags)
        self.placement_groups[name] = group
        return group

    def placement_group(self, name: str) -> PlacementGroup:
        """Return the group; InvalidPlacementGroup.Unknown if there is none."""
        if name not in self.placement_groups:
            raise Refusal(
                "InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown."
            )
        return self.placement_groups[name]

    def delete_placement_group(self, name: str) -> None:
        """Delete the group; InvalidPlacementGroup.InUse while an instance is not terminated."""
        group = self.placement_group(name)
        for instance in self.all_instances():  # type: ignore[attr-defined]  # of the backend
            if instance.placement.group_name == name and instance.state != "terminated":
                raise Refusal(
                    "InvalidPlacementGroup.InUse",
                    f"The placement group '{name}' is in use and may not be deleted.",
                )
        del self.placement_groups[name]
        self.tags.pop(group.id, None)  # type: ignore[attr-defined]  # of the backend


class PlacementGroupActions:
    """The three actions on placement groups; part of the lab's EC2 responses."""

    ec2_backend: Any
    _get_param: Any
    _filters_from_querystring: Any
    error_on_dryrun: Any

    def create_placement_group(self) -> ActionResult:
        """Answer CreatePlacementGroup."""
        name = self._get_param("GroupName")
        if not name:
            raise Refusal("MissingParameter", "The request must contain the parameter groupName")
        self.error_on_dryrun()
        group = self.ec2_backend.create_placement_group(
            name,
            self._get_param("Strategy") or "cluster",
            self._get_param("PartitionCount"),
            add_tag_specification(self._get_param("TagSpecifications", [])),
        )
        return ActionResult({"PlacementGroup": group})

    def describe_placement_groups(self) -> ActionResult:
        """Answer DescribePlacementGroups; InvalidPlacementGroup.Unknown for a name or id."""
        groups = list(self.ec2_backend.placement_groups.values())
        if names := self._get_param("GroupNames", []):
            groups = [self.ec2_backend.placement_group(name) for name in names]
        if ids := self._get_param("GroupIds", []):
            groups = [group for group in groups if group.id in ids]
            if missing := sorted(set(ids) - {group.id for group in groups}):
                raise Refusal(
                    "InvalidPlacementGroup.Unknown",
                    f"The Placement Group '{missing[0]}' is unknown.",
                )
        groups = generic_filter(self._filters_from_querystring(), groups)
        return ActionResult({"PlacementGroups": groups})

    def delete_placement_group(self) -> EmptyResult:
        """Answer DeletePlacementGroup."""
        self.error_on_dryrun()
        self.ec2_backend.delete_placement_group(self._get_param("GroupName"))
        return EmptyResult()
