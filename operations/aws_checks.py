"""What only AWS knows of a cluster: whose account the credentials are of, how a head ended.

A separate module: its imports take 0.1 s, and most commands about runs do not ask AWS.
"""

from config.target import Target
from nodes.inventory import Inventory
from provision.aws.account import caller, check_account
from provision.aws.instances import are_ended, instance_end


def check_credentials(cluster: str, account: str, target: Target) -> None:
    """Raise InputError if the credentials are of another account than the cluster."""
    check_account(cluster, account, caller(target).account)


def head_end(target: Target, inventory: Inventory) -> str:
    """Return how the machine of the cluster's head ended; empty while it runs."""
    return instance_end(target, inventory.nodes[0].instance_id)


def are_others_ended(target: Target, inventory: Inventory) -> bool:
    """Return whether all nodes but the head have ended."""
    return are_ended(target, [node.instance_id for node in inventory.nodes[1:]])
