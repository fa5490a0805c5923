"""Names and tags of what belongs to one cluster."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from config.cluster.resolved import Resolved


@dataclass(frozen=True)
class Named:
    """The cluster's names, tags and the provider that makes its resources.

    Names are the cluster's and not random: a second cluster of the same name in the account and
    region fails at its first named resource, instead of two fleets sharing one tag.
    """

    resolved: Resolved
    provider: pulumi.ProviderResource

    def name(self, part: str = "") -> str:
        """`gpuctl-demo`, or `gpuctl-demo-bastion` for a part."""
        return f"gpuctl-{self.resolved.cluster.name}" + (f"-{part}" if part else "")

    def tags(self, part: str = "") -> dict[str, str]:
        """The cluster's tags and a Name: `demo`, or `demo-node0` for a part."""
        name = self.resolved.cluster.name + (f"-{part}" if part else "")
        return {**self.resolved.tags, "Name": name}

    def options(
        self,
        after: Sequence[pulumi.Resource] = (),
        *,
        delete_first: bool = False,
        replace_on: Sequence[str] = (),
    ) -> pulumi.ResourceOptions:
        """Made by the cluster's provider, after `after`.

        `delete_first`: when replaced, the old one goes before the new one comes. `replace_on`:
        properties that AWS can change in place, but not where they are in use.
        """
        return pulumi.ResourceOptions(
            provider=self.provider,
            depends_on=list(after),
            delete_before_replace=delete_first or None,
            replace_on_changes=list(replace_on),
        )
