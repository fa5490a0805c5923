"""Names and tags of one cluster's resources."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from config.cluster.resolved import Resolved


@dataclass(frozen=True)
class Named:
    """The cluster's names and tags, and the provider that creates its resources.

    Names contain the cluster's name and nothing random. A second cluster of the same name in the
    account and region therefore fails at its first named resource, and no two share a tag.
    """

    resolved: Resolved
    provider: pulumi.ProviderResource

    def name(self, part: str = "") -> str:
        """Return `gpuctl-demo`, or `gpuctl-demo-bastion` for a part."""
        return f"gpuctl-{self.resolved.cluster.name}" + (f"-{part}" if part else "")

    def tags(self, part: str = "") -> dict[str, str]:
        """Return the cluster's tags and a Name: `demo`, or `demo-node0` for a part."""
        name = self.resolved.cluster.name + (f"-{part}" if part else "")
        return {**self.resolved.tags, "Name": name}

    def options(
        self,
        after: Sequence[pulumi.Resource] = (),
        *,
        delete_first: bool = False,
        replace_on: Sequence[str] = (),
        ignore: Sequence[str] = (),
        minutes: int | None = None,
    ) -> pulumi.ResourceOptions:
        """Return the options of a resource that is created after the resources `after`.

        With `delete_first` a replacement deletes the old resource before it creates the new one. A
        change of a property in `replace_on` replaces the resource, although AWS could change the
        property in place as long as nothing uses it. A property in `ignore` counts when the
        resource is created, and never again. `minutes` is the longest time for its creation
        and for its removal; None for the provider's own.
        """
        limits = None
        if minutes is not None:
            limits = pulumi.CustomTimeouts(create=f"{minutes}m", delete=f"{minutes}m")
        return pulumi.ResourceOptions(
            provider=self.provider,
            depends_on=list(after),
            delete_before_replace=delete_first or None,
            replace_on_changes=list(replace_on),
            ignore_changes=list(ignore),
            custom_timeouts=limits,
            transformations=[self._keep_foreign_tags],
        )

    def _keep_foreign_tags(
        self, resource: pulumi.ResourceTransformationArgs
    ) -> pulumi.ResourceTransformationResult:
        """Add the tags that the resource has from others, so that Pulumi does not remove them."""
        props: dict[str, Any] = dict(resource.props)
        for name in ("tags", "volume_tags"):
            place = f"{resource.type_} {resource.name} {name}"
            if props.get(name) and place in self.resolved.foreign_tags:
                props[name] = {**self.resolved.foreign_tags[place], **props[name]}
        return pulumi.ResourceTransformationResult(props, resource.opts)
