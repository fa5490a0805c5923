"""The commands that a policy must allow, with what somebody else does between them.

`usual`: a cluster's life. `further`: also a change of its file, a removal of what Pulumi does not
know, a search for regions. `rare`: what a person changed by hand, and what only machines need.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal
from unittest import mock

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.errors import GpuctlError, NodeError
from config.progress import Progress, Reporter, silent
from config.target import Target
from lab import fault_kinds, fault_table
from nodes.inventory import Inventory
from provision import up as life
from provision.aws.clients import client
from provision.aws.instances import add_topology
from provision.capacity.offers import BlockSize, capacity
from provision.down import down
from provision.drift import drift
from provision.gc import enabled_regions, survey
from provision.removal.sweep import sweep
from provision.setup.nodes_key import NodesKey
from provision.setup.session_manager import Agents, become_session
from provision.state.host_keys import BootingMachine, BootWatch, KnownHosts
from provision.state.store import ClusterStore
from provision.status import clusters
from tests.infra.region import Region
from tests.permissions.accidents import by_hand, leftover_interface

Effort = Literal["usual", "further", "rare"]
Command = Callable[[], object]

DIRECT = {"network": {"access": "elastic-ip"}}


@dataclass(frozen=True)
class Commands:
    """The commands on one cluster of a region; they add warnings and progress to `told`."""

    here: Region
    target: Target
    cluster: Cluster
    told: list[str]

    def of(self, effort: Effort) -> Iterator[Command]:
        """Yield the commands in order; `down` has a cluster to remove only if `up` did not fail."""
        return {"usual": self._usual, "further": self._further, "rare": self._rare}[effort]()

    def _usual(self) -> Iterator[Command]:
        yield partial(
            capacity, self.cluster.instance_type, BlockSize(self.cluster.nodes), self.target
        )
        yield partial(self._up, self.cluster)
        yield from self._reads()
        yield self._down

    def _further(self) -> Iterator[Command]:
        yield partial(enabled_regions, self.target)
        yield partial(self._up, self.cluster.model_copy(update={"tags": {"team": "a"}}))
        yield from self._reads()
        yield partial(self._up, self._changed())
        yield self._sweep
        yield self._down

    def _reads(self) -> Iterator[Command]:
        yield self._status
        yield partial(drift, self.cluster.name, self.target, silent)
        yield self._gc

    def _status(self) -> None:
        for status in clusters(ClusterStore(self.target)):
            self.told.extend(status.problems)

    def _gc(self) -> None:
        self.told.extend(survey(self.target, (self.target.region,), silent).denied)

    def _rare(self) -> Iterator[Command]:
        pair = self.cluster.model_copy(update={"nodes": 2})
        yield self._checked_plan
        yield partial(self._up, pair)
        by_hand(self.target, self.cluster)
        yield partial(self._up, pair)
        if self.cluster.network.uses_session_manager:
            yield self._session
        leftover_interface(self.target, self.cluster, self._record_id())
        yield self._sweep
        yield self._down
        yield partial(self._up, self._as(DIRECT))
        leftover_interface(self.target, self.cluster, self._record_id())
        yield self._down
        faults = fault_table.read(self.here.faults)
        guardduty = fault_kinds.parse("vpc-endpoint", ("by", "guardduty"))
        fault_table.write(self.here.faults, {**faults, "vpc-endpoint": guardduty})
        yield partial(self._up, self.cluster)
        yield self._down

    def _up(self, wanted: Cluster) -> None:
        plan = life.plan(wanted, self.target, silent)
        self.told.extend(plan.resolved.warnings)
        with _machines_that_answer_nobody():
            life.up(plan, self.target, self._note, boot=_ask_of_boot)

    def _checked_plan(self) -> None:
        """Plan with a simulation of the permissions; what that says of others is not wanted."""
        with suppress(GpuctlError):
            plan = life.plan(self.cluster, replace(self.target, check_permissions=True), silent)
            warnings = plan.resolved.warnings
            self.told.extend(one for one in warnings if "could not be checked" in one)

    def _note(self, progress: Progress) -> None:
        self.told.append(progress.detail)

    def _down(self) -> None:
        down(self.cluster.name, self.target, self._note)

    def _sweep(self) -> None:
        """Remove the cluster by its tags, as where Pulumi's state is lost; do not wait in vain."""
        with mock.patch("provision.removal.sweep.PAUSE_S", 0):
            sweep(self.target, self.cluster.name, self._record_id(), silent)

    def _session(self) -> None:
        (status,) = clusters(ClusterStore(self.target))
        with mock.patch("os.execve"):
            become_session(status.nodes[0].instance_id, self.target)

    def _record_id(self) -> str:
        record = ClusterStore(self.target).record(self.cluster.name)
        return record.id if record is not None else ""

    def _changed(self) -> Cluster:
        """Return the cluster with other tags, set-up and, if its ssh port is open, addresses."""
        fields: dict[str, Any] = {"tags": {"project": "b"}, "setup": {"commands": ("true",)}}
        if not self.cluster.network.uses_session_manager:
            fields["network"] = {"ssh_from": "192.0.2.0/24"}
        return self._as(fields)

    def _as(self, fields: dict[str, Any]) -> Cluster:
        content = self.cluster.model_dump(exclude_unset=True)
        network = content.get("network", {}) | fields.get("network", {})
        return Cluster.model_validate(content | fields | {"network": network})


@contextmanager
def _machines_that_answer_nobody() -> Iterator[None]:
    def unreachable(_: object) -> Any:
        raise NodeError("the bastion cannot be reached", "")

    with mock.patch("provision.lease.connect", unreachable):
        yield


def _ask_of_boot(
    resolved: Resolved,
    inventory: Inventory,
    key: NodesKey | None,
    target: Target,
    report: Reporter,
    *,
    is_patient: bool = False,
) -> Inventory:
    """Ask AWS once what the bootstrap asks until machines have booted; return the inventory."""
    del resolved, key, is_patient
    ec2, known = client(target, "ec2"), KnownHosts(inventory.folder / "known_hosts")
    watch = BootWatch(ec2, (), known, report)
    for node in inventory.nodes:
        asyncio.run(watch._console(BootingMachine(node.name, node.instance_id, node.private_ip)))
    if inventory.proxy:
        agents = Agents(client(target, "ssm"), inventory.nodes)
        agents._ask([node.instance_id for node in inventory.nodes])
    add_topology(ec2, inventory.cluster, inventory.nodes, report)
    return inventory
