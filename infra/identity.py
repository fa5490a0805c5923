"""What the nodes may do in AWS: nothing, unless people come in through Session Manager."""

import json

from pulumi_aws import iam

from infra.naming import Named

POLICY = "arn:{partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"
"""AWS's own policy for instances that Session Manager reaches: "Step 2: Verify or add instance
permissions for Session Manager" (Systems Manager User Guide, 2026-11-20)."""


def instance_profile(named: Named) -> iam.InstanceProfile | None:
    """A role that lets the nodes' SSM agent register, in an instance profile; None without need.

    IAM knows no regions: path and names have the region in them, so that two clusters of one name
    in two regions have roles of their own, and each is found again.
    """
    resolved = named.resolved
    if resolved.cluster.network.access != "ssm":
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
    attached = iam.RolePolicyAttachment(
        "nodes",
        role=role.name,
        policy_arn=POLICY.format(partition=_partition(resolved.region)),
        opts=named.options(delete_first=True),
    )
    return iam.InstanceProfile(
        "nodes",
        name=name,
        path=path,
        role=role.name,
        tags=named.tags("nodes"),
        opts=named.options([attached], delete_first=True),
    )


def _partition(region: str) -> str:
    """The part of AWS that the region is in.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html, 2026-11-20.
    """
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"
