"""Replace machines that `up` cannot make ready, alone and within `capacity.spare_attempts`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import WaiterError

from config.cluster.resolved import Resolved
from config.errors import BrokenNodes, CloudError, InputError
from config.folded_names import fold
from config.progress import Progress, Reporter
from config.target import Target
from infra.fleet import Fleet
from infra.stack.changes import Plan
from infra.stack.stack import Stack
from nodes.identity import has_cluster_key
from nodes.inventory import Inventory, Replaced
from provision.aws.clients import aws_errors, client
from provision.nodes.foreign_tags import refresh_foreign_tags
from provision.nodes.launch import FleetLaunch
from provision.setup.bootstrap import bootstrap, inventory_of
from provision.setup.nodes_key import NodesKey, nodes_key

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


_DELAY_S, _TRIES = 3, 400
"""How often AWS is asked whether a machine has ended: large GPU instances take minutes."""


def terminate(ec2: "EC2Client", ids: Sequence[str]) -> None:
    """End the machines and wait for it; those that AWS no longer knows have ended."""
    known = []
    for instance_id in ids:
        try:
            with aws_errors():
                ec2.terminate_instances(InstanceIds=[instance_id])
        except CloudError as error:
            if error.code != "InvalidInstanceID.NotFound":
                raise
        else:
            known.append(instance_id)
    if not known:
        return
    try:
        ec2.get_waiter("instance_terminated").wait(
            InstanceIds=known, WaiterConfig={"Delay": _DELAY_S, "MaxAttempts": _TRIES}
        )
    except WaiterError as error:
        raise CloudError(
            f"AWS has not ended {', '.join(known)} within 20 minutes: {error}",
            "repeat the command later",
        ) from error


def check_others_stay(plan: Plan, cluster: str) -> None:
    """Raise InputError if the plan to make ended machines again changes other nodes too."""
    if not plan.only_adds:
        raise InputError(
            f"cluster {cluster} was changed meanwhile, so that other nodes would change too",
            "run `gpuctl up` with its file: it makes the ended machines again",
        )


STAGE = "spare"

Boot = Callable[..., Inventory]
"""Makes the nodes of an inventory ready, as `bootstrap` does; returns them with what it found."""


@dataclass(frozen=True)
class Choice:
    """The nodes to replace; if there are none, `refusal` is the reason."""

    nodes: tuple[str, ...] = ()
    refusal: str = ""


def choose(causes: Mapping[str, str], nodes: Sequence[str], attempts: int, used: int) -> Choice:
    """Choose the nodes to replace: all that failed, or none.

    None if a machine failed that is no node, if all of several nodes failed for the same cause,
    which new machines would have too, or if more failed than attempts are left.
    """
    failed = tuple(name for name in nodes if name in causes)
    if others := sorted(set(causes) - set(nodes)):
        return Choice(refusal=f"no node is replaced, because {', '.join(others)} failed too")
    if len(nodes) > 1 and failed == tuple(nodes) and len(set(causes.values())) == 1:
        return Choice(refusal=f"no node is replaced, because all {len(nodes)} failed alike")
    left = attempts - used
    if len(failed) > left:
        count = "no machine was" if not used else f"{used} {'was' if used == 1 else 'were'}"
        return Choice(
            refusal=f"{fold(failed)} cannot be replaced: {count} replaced before, and"
            f" capacity.spare_attempts is {attempts}"
        )
    return Choice(failed)


@dataclass(frozen=True)
class Spares:
    """The way from a launched fleet to nodes that are ready; `resolved` has its zone.

    `key` is that of the nodes, if a node has given it before others ended. With `has_new_bastion`
    no node is reached before that one is ready. `boot` makes a fleet ready.
    """

    resolved: Resolved
    stack: Stack
    target: Target
    key: NodesKey | None = None
    has_new_bastion: bool = False
    boot: Boot = bootstrap

    def make_ready(self, fleet: Fleet, report: Reporter) -> Inventory:
        """Bootstrap the fleet; replace nodes that fail, and bootstrap again.

        Raises BrokenNodes if the attempts do not suffice, and the errors of a launch.
        """
        attempts = self.resolved.cluster.capacity.spare_attempts
        inventory = inventory_of(self.resolved, fleet, self.target)
        public, key = self.resolved.nodes_public_key, self.key
        if key is None and not (self.has_new_bastion and not has_cluster_key(inventory.folder)):
            # Before a machine ends: it may be the only one that gives the key.
            key = nodes_key(inventory, public)
        replaced: tuple[Replaced, ...] = ()
        while True:
            try:
                ready = self.boot(
                    self.resolved, inventory, key, self.target, report, is_patient=attempts > 0
                )
            except BrokenNodes as error:
                if not attempts:
                    raise
                names = self.resolved.node_names
                choice = choose(error.causes, names, attempts, len(replaced))
                if not choice.nodes:
                    raise error.with_added_hint(choice.refusal, "\n") from error
                ids = {node.name: node.instance_id for node in inventory.nodes}
                broken = tuple(
                    Replaced(name=name, instance_id=ids[name], cause=error.causes[name])
                    for name in choice.nodes
                )
                key = key or nodes_key(inventory, public)
                fleet = self._launch_again(broken, report)
                inventory = inventory_of(self.resolved, fleet, self.target)
                replaced += broken
            else:
                return ready.model_copy(update={"replaced": replaced})

    def _launch_again(self, broken: Sequence[Replaced], report: Reporter) -> Fleet:
        """Terminate the machines, and launch new ones in their place; return the new fleet."""
        for node in broken:
            report(
                Progress(STAGE, node.name, "running", f"replaces {node.instance_id}: {node.cause}")
            )
        terminate(client(self.target, "ec2"), [node.instance_id for node in broken])
        # The cluster exists, so that it cannot move to another zone.
        placed = self.resolved.model_copy(update={"zones": (self.resolved.zone,)})
        placed = refresh_foreign_tags(placed, self.target, self.stack)
        plan = self.stack.preview(placed)
        check_others_stay(plan, placed.cluster.name)
        launch = FleetLaunch(placed, plan, self.stack, self.target, on_zone=lambda _: None)
        fleet = launch.carry_out(report)
        for broken_node in broken:
            report(Progress(STAGE, broken_node.name, "done", f"replaces {broken_node.instance_id}"))
        return fleet
