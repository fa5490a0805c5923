"""The checks of S3 buckets that exist: nodes read them with the role of their instance profile."""

from collections.abc import Iterator
from typing import Any

from botocore.exceptions import ClientError

from config.cluster.cluster_file import Cluster
from config.errors import InputError
from config.target import Target
from provision.aws.clients import aws_errors, client
from provision.permissions.check import RoleOfNodes

REGION_HEADER = "x-amz-bucket-region"
"""S3 sends it also to callers that may not read the bucket: S3 API Reference, HeadBucket,
"Errors" and "Response elements" (2026-11-28)."""

_READS = {"s3:ListBucket": "", "s3:GetObject": "/*"}
"""A reader's actions. Each has the end of its resource's ARN, after the bucket's name."""


def check_buckets(cluster: Cluster, target: Target) -> tuple[str, ...]:
    """Return a warning for each bucket of the file that is in another region than the nodes.

    Raises InputError if a bucket does not exist.
    """
    if not cluster.storage.buckets:
        return ()
    s3 = client(target, "s3")
    regions = {name: _region(s3, name) for name in cluster.storage.buckets}
    return tuple(
        f"storage.buckets: {name} is in {region}, and the nodes are in {target.region}: AWS charges"
        " for each GB that they read from there"
        for name, region in regions.items()
        if region not in ("", target.region)
    )


def check_reads(cluster: Cluster, target: Target, nodes: RoleOfNodes) -> None:
    """Raise InputError for buckets that the nodes' role may not read.

    Raises CloudError if the caller may not simulate policies.
    """
    denied = list(_denied(cluster, target, nodes)) if nodes.role else []
    if denied:
        raise InputError(
            f"storage.buckets: the role of instance profile '{cluster.instance_profile}' does not"
            f" allow {', '.join(denied)}",
            "an administrator allows it in the role's policies, and in its permissions boundary if"
            " it has one; gpuctl does not read the policies of buckets: remove a bucket whose own"
            " policy admits the role from storage.buckets",
        )


def _denied(cluster: Cluster, target: Target, nodes: RoleOfNodes) -> Iterator[str]:
    """Yield each action that the role lacks, with its resource."""
    iam = client(target, "iam")
    partition = nodes.role.split(":")[1]
    for action, suffix in _READS.items() if cluster.storage.buckets else ():
        arns = [f"arn:{partition}:s3:::{name}{suffix}" for name in cluster.storage.buckets]
        with aws_errors():
            answer = iam.simulate_principal_policy(
                PolicySourceArn=nodes.role, ActionNames=[action], ResourceArns=arns
            )
        for result in answer["EvaluationResults"]:
            if result["EvalDecision"] != "allowed":
                yield f"{action} on {result['EvalResourceName']}"


def _region(s3: Any, name: str) -> str:
    """Return the bucket's region, empty if S3 does not say; InputError if there is no such bucket.

    Who may not read a bucket is refused, but gets its region: it may be another account's.
    """
    with aws_errors():
        try:
            answer: Any = s3.head_bucket(Bucket=name)
        except ClientError as error:
            answer = error.response
            code = int(answer["ResponseMetadata"]["HTTPStatusCode"])
            if code == 404:
                raise InputError(
                    f"storage.buckets: there is no S3 bucket '{name}'", "`aws s3 ls` lists yours"
                ) from error
            if code != 403:
                raise
    return str(answer["ResponseMetadata"]["HTTPHeaders"].get(REGION_HEADER, ""))
