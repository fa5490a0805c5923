"""The ssh of a person to a cluster's nodes: a shell, and the hosts in their own ssh settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from config.errors import InputError
from config.event_loop import run_in_loop
from nodes import openssh
from nodes.identity import has_cluster_key
from nodes.inventory import Inventory
from nodes.openssh import write_openssh_config
from operations.chosen_target import ChosenTarget
from provision.setup import session_manager


def ssh_command(
    chosen: ChosenTarget,
    cluster: str,
    node: str = "node0",
    command: Sequence[str] = (),
) -> list[str]:
    """Return the command of OpenSSH for a shell on the node, or for one command there.

    Host keys are pinned. Raises InputError for an unknown node,
    NodeError with what to do if a machine refuses the user's keys.
    """
    return ssh_to(chosen.cluster_store(cluster).inventory(cluster), node, command)


def ssh_to(
    inventory: Inventory, node: str, command: Sequence[str] = (), options: Sequence[str] = ()
) -> list[str]:
    """Return what `ssh_command` returns, with `options` of OpenSSH, for this inventory."""
    names = [machine.name for machine in inventory.nodes]
    if inventory.bastion is not None:
        names = ["bastion", *names]
    if node not in names:
        raise InputError(
            f"cluster {inventory.cluster} has no '{node}'", f"it has {', '.join(names)}"
        )
    if not has_cluster_key(inventory.folder):
        run_in_loop(_try_login(inventory, node))
    return ["ssh", "-F", str(write_openssh_config(inventory)), *options, node, *command]


async def _try_login(inventory: Inventory, name: str) -> None:
    """Raise NodeError, with what to do, if a machine refuses the user's keys: ssh would not say."""
    # asyncssh: most logins do not need it, and begin at once.
    from nodes.ssh import connect  # noqa: PLC0415

    async with connect(inventory) as connections:
        for node in inventory.nodes:
            if node.name == name:
                await connections.run(node, "true", timeout=60)


@dataclass(frozen=True)
class Hosts:
    """A cluster's nodes as hosts for ssh: the `names`, and the `file` that is to have them.

    `include` is the line that the user's `settings` of ssh still need, None if they have it.
    """

    inventory: Inventory
    file: Path
    settings: Path
    names: tuple[str, ...]
    include: str | None


def plan_hosts(chosen: ChosenTarget, cluster: str) -> Hosts:
    """Return the hosts that `write_hosts` writes; change nothing."""
    inventory = chosen.cluster_store(cluster).inventory(cluster)
    settings = openssh.user_config()
    names = [f"{cluster}-{node.name}" for node in inventory.nodes]
    names += [f"{cluster}-bastion"] if inventory.bastion else []
    include = None if openssh.has_include(settings) else openssh.include_line()
    return Hosts(inventory, openssh.hosts_file(cluster), settings, tuple(names), include)


def write_hosts(hosts: Hosts) -> None:
    """Write the hosts, and the line that includes their file if the user's settings lack it.

    They follow changes of the cluster, and end with it.
    """
    if hosts.include is not None:
        openssh.add_include(hosts.settings)
    openssh.write_hosts(hosts.inventory)


def remove_hosts(chosen: ChosenTarget, cluster: str) -> tuple[Path, bool]:
    """Remove the cluster's hosts; return the path of their file, and whether there was one."""
    inventory = chosen.cluster_store(cluster).inventory(cluster)
    return openssh.hosts_file(cluster), openssh.remove_hosts(cluster, inventory.folder)


def become_session(chosen: ChosenTarget, instance: str) -> None:
    """Connect standard input and output with the ssh of an instance; this process becomes that."""
    session_manager.become_session(instance, chosen.target())
