"""The machines of a cluster come whole or not at all, whatever capacity they are bought from."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from config.catalogue.aws_codes import aws_code
from config.cluster.resolved import Resolved
from config.errors import CloudError, GpuctlError, InfraError, Interrupted
from config.progress import Progress, Reporter
from config.target import Target
from infra.fleet import Fleet
from infra.pulumi_engine.changes import Plan
from infra.pulumi_engine.stack import Stack
from provision.costs.cost import hourly_usd
from provision.launch.claim import claim_capacity, may_succeed_elsewhere, try_zones
from provision.preflight.reservations import await_start
from provision.removal.sweep import sweep

TRIES = 3
"""Launches of a node that failed, in the claim that holds its place."""

_INSTANCE = "aws:ec2/instance:Instance"


@dataclass(frozen=True)
class Launch:
    """One `up` of a cluster's machines.

    `on_zone` is called with the cluster as soon as its zone is certain, before anything is created
    there.
    """

    resolved: Resolved
    plan: Plan
    stack: Stack
    target: Target
    on_zone: Callable[[Resolved], None]

    def carry_out(self, report: Reporter) -> Fleet:
        """The fleet is as planned. A new cluster that cannot be had whole leaves nothing behind.

        Raises CloudError where capacity is refused, InfraError where Pulumi fails.
        """
        await_start(self.resolved, report)
        is_new = not self.stack.exists()
        try:
            kind = self.resolved.cluster.capacity.type
            if kind == "spot" and is_new:
                return try_zones(self.resolved, self._what, self._spot(report), report)
            if kind == "spot" and self._new:
                return self._grown(report)
            if kind == "on-demand" and self._new:
                if is_new:
                    self.stack.begin(self.resolved, report)
                return self._claimed(report)
            return self._launched(self.resolved, report)
        except Interrupted:
            raise  # the engine ended what was under way: the same command goes on from there
        except (CloudError, InfraError) as error:
            if is_new:
                self._give_back(error, report)
            raise
        except KeyboardInterrupt:
            if is_new:
                with suppress(GpuctlError):  # `up` tells what exists, and how to remove it
                    self._remove_all(report)
            raise

    @property
    def _new(self) -> tuple[str, ...]:
        """The nodes that are made and do not exist. One that is replaced frees its own place."""
        made = {c.name for c in self.plan.changes if c.op == "create" and c.type == _INSTANCE}
        return tuple(name for name in self.resolved.node_names if name in made)

    @property
    def _what(self) -> str:
        return f"{len(self._new)} x {self.resolved.instance_type.name}"

    def _claimed(self, report: Reporter) -> Fleet:
        """All new nodes have their place before the first is launched."""
        with claim_capacity(self.resolved, len(self._new), self.target, report) as claim:
            there = self._in(claim.zone)
            self.on_zone(there)
            return self._launched(there, report)

    def _spot(self, report: Reporter) -> Callable[[str], Fleet]:
        """Nodes at once in one zone; after a refusal what came is removed."""

        def attempt(zone: str) -> Fleet:
            there = self._in(zone)
            self.on_zone(there)
            try:
                return self.stack.up(there, report)
            except InfraError:
                self._remove_all(report)
                raise

        return attempt

    def _grown(self, report: Reporter) -> Fleet:
        """More spot nodes beside those that run; when one is refused, those that came go again."""
        try:
            return self._launched(self.resolved, report)
        except InfraError as error:
            names = self.resolved.node_names
            stay = len(names) - len(self._new)
            if stay and may_succeed_elsewhere(error) and names[stay:] == self._new:
                report(Progress("capacity", self.resolved.zone, "failed", error.code))
                cluster = self.resolved.cluster.model_copy(update={"nodes": stay})
                try:
                    self.stack.up(self.resolved.model_copy(update={"cluster": cluster}), report)
                except GpuctlError as left:
                    error.hint += (
                        f"; nodes that came could not be removed ({left.message}) and bill on:"
                        f" `gpuctl down {cluster.name}`"
                    )
                else:
                    error.hint += f"; the {stay} nodes that ran before go on"
            raise

    def _launched(self, there: Resolved, report: Reporter) -> Fleet:
        """A node that failed is launched again, beside those that are well."""
        for left in reversed(range(TRIES)):
            try:
                return self.stack.up(there, report)
            except InfraError as error:
                if left == 0 or not _may_pass(error, there):
                    raise
                detail = f"{error.code or 'it failed'}: launched again"
                report(Progress("capacity", error.resource, "running", detail))
        raise AssertionError("unreachable")

    def _in(self, zone: str) -> Resolved:
        """The cluster in that zone.

        Where it is not the planned one, the plan differs in it alone: only a cluster of which
        nothing exists yet can choose.
        """
        if zone == self.resolved.zone:
            return self.resolved
        return self.resolved.model_copy(update={"zone": zone})

    def _give_back(self, error: GpuctlError, report: Reporter) -> None:
        """Remove what was made; the hint of `error` then names what stays, and what that costs."""
        is_anothers = getattr(error, "code", "").endswith(".Duplicate")  # of the same name
        try:
            try:
                self.stack.destroy(report)
            except InfraError:
                if is_anothers:
                    raise
                # A disk that is full stops the engine; what has our tags goes all the same.
            if not is_anothers:
                sweep(self.target, self.resolved.cluster.name, self.resolved.id, report)
        except GpuctlError as left:
            cost = hourly_usd(self.resolved)
            rate = "" if cost is None else f" and may cost up to ${cost:,.2f} an hour"
            rest = (
                f"what was made could not be removed{rate} ({left.message}):"
                f" `gpuctl down {self.resolved.cluster.name}`"
            )
            error.hint = f"{error.hint}; {rest}" if error.hint else rest

    def _remove_all(self, report: Reporter) -> None:
        self.stack.destroy(report)
        sweep(self.target, self.resolved.cluster.name, self.resolved.id, report)


def _may_pass(error: InfraError, there: Resolved) -> bool:
    """Whether the launch of that node may succeed when it is tried again."""
    known = aws_code(error.code)
    return error.resource in there.node_names and (known is None or known.repeat != "no")
