"""The launch of a cluster's machines: all of them or none, for every kind of capacity."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from config.catalogue.aws_codes import aws_code
from config.cluster.resolved import Resolved
from config.command_text import command_text
from config.errors import CloudError, GpuctlError, InfraError, Interrupted
from config.progress import Progress, Reporter
from config.target import Target
from infra.fleet import NO_CLAIMS, Claims, Fleet
from infra.stack.changes import INSTANCE, Plan
from infra.stack.stack import Stack
from provision.aws.guardduty import ENDPOINT, GROUP
from provision.aws.resources import find_all
from provision.billing.cost import hourly_usd
from provision.capacity.claim import (
    CAPACITY_TIMES,
    CapacityTimes,
    Claim,
    NoCapacity,
    claim_capacity,
    may_succeed_elsewhere,
    try_zones,
)
from provision.capacity.reservations import await_reservation
from provision.nodes.foreign_tags import refresh_foreign_tags
from provision.removal.sweep import sweep
from provision.setup.machines import BASTION

TRIES = 3
"""The most launches of a node that failed, within the claim that reserves its capacity."""


@dataclass(frozen=True)
class FleetLaunch:
    """One launch of a cluster's machines.

    `on_zone` is called with the cluster as soon as its zone is certain, before anything is created
    there. `replace` names the nodes that get new machines.
    """

    resolved: Resolved
    plan: Plan
    stack: Stack
    target: Target
    on_zone: Callable[[Resolved], None]
    replace: tuple[str, ...] = ()
    times: CapacityTimes = CAPACITY_TIMES

    def carry_out(self, report: Reporter) -> Fleet:
        """Carry out the plan, and return the fleet. A new cluster that fails is removed again.

        Raises CloudError if AWS refuses the capacity, InfraError if Pulumi fails.
        """
        await_reservation(self.resolved, self.target, report, self.times.cleanup)
        is_new = not self.stack.exists()
        try:
            kind = self.resolved.cluster.capacity.type
            if kind == "spot" and is_new:
                attempt = self._spot_attempt(report)
                return try_zones(self.resolved, self._request, attempt, report, self.times)
            if kind == "spot" and self._new_nodes:
                return self._add_spot_nodes(report)
            if kind == "on-demand" and self._new_nodes:
                return self._launch_claimed(report, is_new=is_new)
            return self._launch(self.resolved, report)
        except Interrupted:
            raise  # the Pulumi engine finished its current steps; the same command continues
        except (CloudError, InfraError) as error:
            if is_new and (remains := self.roll_back(error, report)):
                raise error.with_added_hint(remains) from error
            raise
        except KeyboardInterrupt:
            if is_new:
                self._remove_interrupted(report)
            raise

    @property
    def _new_nodes(self) -> tuple[str, ...]:
        """The nodes to create. A replacement is not among them: it needs no extra capacity."""
        made = {c.name for c in self.plan.changes if c.op == "create" and c.type == INSTANCE}
        return tuple(name for name in self.resolved.node_names if name in made)

    @property
    def _request(self) -> str:
        return f"{len(self._new_nodes)} x {self.resolved.instance_type.name}"

    def _claim(
        self, placed: Resolved, report: Reporter, *, has_group: bool = False
    ) -> AbstractContextManager[Claim]:
        """Reserve capacity for all new nodes until the block ends."""
        count = len(self._new_nodes)
        return claim_capacity(placed, count, self.target, report, self.times, has_group=has_group)

    def _places(self, claim: Claim) -> Claims:
        return dict.fromkeys(self._new_nodes, claim.id)

    def _launch_claimed(self, report: Reporter, *, is_new: bool) -> Fleet:
        """Claim capacity for all new nodes, then create all else and launch them.

        A placement group that is still to be created comes first, and the claim is in it: nodes
        that start in the group would not use a claim outside of it.
        """
        machines = {*self.resolved.node_names, BASTION}
        has_machines = not is_new and not machines.isdisjoint(self.stack.names().values())
        if not has_machines and (self.plan.slow or not is_new):
            return self._launch_prepared(report)
        if self.plan.makes_group:
            self.stack.prepare(self.resolved, "group", report)
        with self._claim(self.resolved, report, has_group=self.plan.makes_group) as claim:
            placed = self._in_zone(claim.zone)
            self.on_zone(placed)
            return self._launch(placed, report, self._places(claim))

    def _launch_prepared(self, report: Reporter) -> Fleet:
        """Create all but the machines, then claim capacity and launch them.

        A claim costs what its nodes cost, and some of the rest takes minutes. If the last claim is
        in another zone than the rest, it is kept while the rest moves there.
        """
        has_group = self.resolved.cluster.placement.strategy != "none"
        placed = self._find_zone(report) if self.plan.slow else self.resolved
        for is_last in (False, True):
            self.on_zone(placed)
            self.stack.prepare(placed, "surroundings", report)
            with self._claim(placed, report, has_group=has_group) as claim:
                is_there = claim.zone == placed.zone
                placed = self._in_zone(claim.zone)
                if is_last and not is_there:
                    self.on_zone(placed)
                    self.stack.prepare(placed, "surroundings", report)
                if is_last or is_there:
                    return self._launch(placed, report, self._places(claim))
        raise AssertionError("unreachable")

    def _find_zone(self, report: Reporter) -> Resolved:
        """Return the cluster in a zone that has the capacity now, which a claim shows.

        If no zone has it, but the cluster waits for capacity, it is the planned zone.
        """
        capacity = self.resolved.cluster.capacity
        now = capacity.model_copy(update={"wait": None})
        cluster = self.resolved.cluster.model_copy(update={"capacity": now})
        try:
            hurried = self.resolved.model_copy(update={"cluster": cluster})
            with self._claim(hurried, report) as claim:
                pass  # it only shows where the capacity is
        except NoCapacity:
            if not capacity.wait:
                raise
            return self.resolved
        detail = f"released: it is claimed again when this exists: {', '.join(self.plan.slow)}"
        report(Progress("capacity", claim.zone, "running", detail))
        return self._in_zone(claim.zone)

    def _spot_attempt(self, report: Reporter) -> Callable[[str], Fleet]:
        """Return a function that launches all nodes in one zone, and removes them on a refusal."""

        def attempt(zone: str) -> Fleet:
            placed = self._in_zone(zone)
            self.on_zone(placed)
            try:
                return self.stack.up(placed, report)
            except InfraError:
                self._remove_all(report)
                raise

        return attempt

    def _add_spot_nodes(self, report: Reporter) -> Fleet:
        """Add spot nodes to those that run; if AWS refuses one, remove all new ones."""
        try:
            return self._launch(self.resolved, report)
        except InfraError as error:
            names = self.resolved.node_names
            stay = len(names) - len(self._new_nodes)
            if stay and may_succeed_elsewhere(error) and names[stay:] == self._new_nodes:
                report(Progress("capacity", self.resolved.zone, "failed", error.code))
                cluster = self.resolved.cluster.model_copy(update={"nodes": stay})
                fewer = self.resolved.model_copy(update={"cluster": cluster})
                try:
                    kept = refresh_foreign_tags(fewer, self.target, self.stack)
                    self.stack.up(kept, report)
                except GpuctlError as left:
                    outcome = (
                        f"new nodes could not be removed ({left.message}) and are still billed:"
                        f" remove the cluster with {command_text('gpuctl down {}', cluster.name)}"
                    )
                else:
                    outcome = f"the {stay} nodes that ran before keep running"
                raise error.with_added_hint(outcome) from error
            raise

    def _launch(self, placed: Resolved, report: Reporter, claims: Claims = NO_CLAIMS) -> Fleet:
        """Launch the nodes; launch a node that failed again, and keep the others."""
        before = self.stack.nodes() if self.replace else {}
        for left in reversed(range(TRIES)):
            placed = refresh_foreign_tags(placed, self.target, self.stack)
            now = self.stack.nodes() if self.replace else {}
            # After a failure some of them are new machines already.
            replace = [name for name in self.replace if name in now and now[name] == before[name]]
            try:
                return self.stack.up(placed, report, claims, replace)
            except InfraError as error:
                if left == 0 or not _may_pass(error, placed):
                    raise
                detail = f"{error.code or 'it failed'}: launched again"
                report(Progress("capacity", error.resource, "running", detail))
                await_reservation(placed, self.target, report, self.times.cleanup)
        raise AssertionError("unreachable")

    def _in_zone(self, zone: str) -> Resolved:
        """Return the cluster, placed in the zone, which is then the first to be tried.

        Only a cluster that has no node yet can move to another zone than the planned one, and then
        the plan differs in nothing else.
        """
        if zone == self.resolved.zone:
            return self.resolved
        others = tuple(other for other in self.resolved.zones if other != zone)
        return self.resolved.model_copy(update={"zone": zone, "zones": (zone, *others)})

    def roll_back(self, error: GpuctlError, report: Reporter) -> str:
        """Remove what was created before `error`; if that fails, return what is left, else ''."""
        # After a duplicate name the resources with the cluster's tags may be another cluster's.
        is_anothers = getattr(error, "code", "").endswith(".Duplicate")
        try:
            try:
                self._destroy(report)
            except InfraError:
                if is_anothers:
                    raise
                # A full disk stops the Pulumi engine; the sweep removes all that has our tags.
            if not is_anothers:
                sweep(self.target, self.resolved.cluster.name, self.resolved.id, report)
        except GpuctlError as left:
            return self._remains(left)
        return ""

    def _remove_interrupted(self, report: Reporter) -> None:
        """Remove what was created before Ctrl-C; raise Interrupted if that fails."""
        try:
            self._remove_all(report)
        except GpuctlError as left:
            raise Interrupted(f"interrupted, and {self._remains(left)}", left.hint) from None

    def _remains(self, left: GpuctlError) -> str:
        """Return a text: what a removal that failed left, its price, and how to remove it."""
        cost = hourly_usd(self.resolved)
        rate = "" if cost is None else f" and may cost up to ${cost:,.2f} an hour"
        return (
            f"what was created could not be removed{rate} ({left.message}):"
            f" remove it with {command_text('gpuctl down {}', self.resolved.cluster.name)}"
        )

    def _destroy(self, report: Reporter) -> None:
        """Remove what Pulumi knows; first what GuardDuty has put around it, which Pulumi awaits."""
        name, cluster_id = self.resolved.cluster.name, self.resolved.id
        if find_all(self.target, name, (ENDPOINT, GROUP), cluster_id):
            sweep(self.target, name, cluster_id, report)
        self.stack.destroy(report)

    def _remove_all(self, report: Reporter) -> None:
        self._destroy(report)
        sweep(self.target, self.resolved.cluster.name, self.resolved.id, report)


def _may_pass(error: InfraError, placed: Resolved) -> bool:
    """Return whether another launch of the node that failed may succeed."""
    known = aws_code(error.code)
    return error.resource in placed.node_names and (known is None or known.repeat != "no")
