"""The nodes' permissions in AWS: none, unless people use Session Manager to reach the nodes."""

import json

import pulumi
import pulumi_aws as aws

from config.catalogue.iam_actions import POLICY
from infra.program.tags import Named


def profile_name(named: Named) -> pulumi.Input[str] | None:
    """Return the name of the nodes' instance profile; create it if the cluster needs its own.

    None if the nodes have no permissions in AWS.
    """
    cluster = named.resolved.cluster
    if cluster.instance_profile is not None:
        return cluster.instance_profile
    return _create_profile(named).name if cluster.needs_role else None


def _create_profile(named: Named) -> aws.iam.InstanceProfile:
    """Create an instance profile with a role that lets the nodes' SSM agents register.

    IAM has no regions: path and names contain the region, so that two clusters of one name in two
    regions have different roles.
    """
    resolved = named.resolved
    name = f"gpuctl-{resolved.region}-{resolved.cluster.name}"
    path = f"/gpuctl/{resolved.region}/"
    role = aws.iam.Role(
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
        permissions_boundary=resolved.boundary or None,
        tags=named.tags("nodes"),
        opts=named.options(delete_first=True),
    )
    allowed = aws.iam.RolePolicy(
        "nodes",
        name="session-manager",
        role=role.name,
        policy=json.dumps(POLICY),
        opts=named.options(delete_first=True),
    )
    return aws.iam.InstanceProfile(
        "nodes",
        name=name,
        path=path,
        role=role.name,
        tags=named.tags("nodes"),
        opts=named.options([allowed], delete_first=True),
    )
