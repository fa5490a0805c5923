"""What the nodes may do in AWS: nothing, unless people come in through Session Manager."""

import json

from pulumi_aws import iam

from infra.program.tags import Named

POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": [
                "ssm:UpdateInstanceInformation",
                "ssmmessages:CreateControlChannel",
                "ssmmessages:CreateDataChannel",
                "ssmmessages:OpenControlChannel",
                "ssmmessages:OpenDataChannel",
            ],
            "Resource": "*",
        }
    ],
}
"""What an instance needs that Session Manager reaches, and no more: AWS's own policy for it,
AmazonSSMManagedInstanceCore, lets a job read the account's parameters too. The actions are those of
"Create a custom IAM role for Session Manager", "minimal Session Manager permissions"
(https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-create-iam-instance-profile.html,
2026-11-22)."""


def instance_profile(named: Named) -> iam.InstanceProfile | None:
    """A role that lets the nodes' SSM agent register, in an instance profile; None without need.

    IAM knows no regions: path and names have the region in them, so that two clusters of one name
    in two regions have roles of their own, and each is found again.
    """
    resolved = named.resolved
    if not resolved.cluster.network.uses_session_manager:
        return None
    name = f"gpuctl-{resolved.region}-{resolved.cluster.name}"
    path = f"/gpuctl/{resolved.region}/"
    role = iam.Role(
        "nodes",
        name=name,
        path=path,
        description=f"gpuctl {resolved.cluster.name}: nodes that Session Manager reaches",
        assume_role_policy=json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"Service": "ec2.amazonaws.com"},
                        "Action": "sts:AssumeRole",
                    }
                ],
            }
        ),
        tags=named.tags("nodes"),
        opts=named.options(delete_first=True),
    )
    allowed = iam.RolePolicy(
        "nodes",
        name="session-manager",
        role=role.name,
        policy=json.dumps(POLICY),
        opts=named.options(delete_first=True),
    )
    return iam.InstanceProfile(
        "nodes",
        name=name,
        path=path,
        role=role.name,
        tags=named.tags("nodes"),
        opts=named.options([allowed], delete_first=True),
    )
