"""The check of the nodes' permissions in AWS: the role that gpuctl creates, or an existing one."""

from typing import Any

from config.catalogue.iam_actions import ACTIONS
from config.cluster.cluster_file import Cluster
from config.command_text import command_text
from config.errors import InputError
from config.target import Target
from provision.aws.account import Caller
from provision.aws.clients import aws_errors, call_unless_gone, client
from provision.permissions.check import RoleOfNodes
from provision.permissions.policy import find_boundary

_ADD_ROLE = "aws iam add-role-to-instance-profile --instance-profile-name {} --role-name {}"


def find_role(cluster: Cluster, target: Target, who: Caller) -> RoleOfNodes:
    """Return the boundary for a role that gpuctl creates, or the role of the file's profile.

    Raises InputError if the file's instance profile does not exist or has no role.
    """
    name = cluster.instance_profile
    if name is None:
        return RoleOfNodes(find_boundary(target, who) if cluster.needs_role else "")
    iam = client(target, "iam")
    answer: Any = call_unless_gone(
        lambda: iam.get_instance_profile(InstanceProfileName=name), ("NoSuchEntity",)
    )
    if answer is None:
        raise InputError(
            f"instance_profile: account {who.account} has no instance profile '{name}'",
            "an administrator creates it, with a role of the same name for ec2.amazonaws.com",
        )
    roles = answer["InstanceProfile"]["Roles"]
    if not roles:
        raise InputError(
            f"instance_profile: '{name}' has no role",
            f"an administrator adds one: {command_text(_ADD_ROLE, name, name)}",
        )
    return RoleOfNodes(role=str(roles[0]["Arn"]))


def check_sessions(cluster: Cluster, target: Target, nodes: RoleOfNodes) -> None:
    """Raise InputError if the nodes' role lacks what Session Manager needs of it.

    Such nodes would boot and never be reachable. Raises CloudError if the caller may not simulate
    policies.
    """
    if not (cluster.network.uses_session_manager and nodes.role):
        return
    iam = client(target, "iam")
    with aws_errors():
        answer = iam.simulate_principal_policy(
            PolicySourceArn=nodes.role, ActionNames=list(ACTIONS)
        )
    results = answer["EvaluationResults"]
    denied = [result["EvalActionName"] for result in results if result["EvalDecision"] != "allowed"]
    if denied:
        raise InputError(
            f"instance_profile: the role of '{cluster.instance_profile}' does not allow"
            f" {', '.join(denied)}, which network.access: ssm needs",
            "an administrator adds the policy that `gpuctl iam-policy --boundary` prints to the"
            " role, and to its permissions boundary if it has one",
        )
