"""S3 buckets of a cluster file are checked before anything is made: they exist, and nodes read."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cli.render.plan import storage_lines
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.errors import GpuctlError, InputError
from config.target import Target
from provision.preflight.preflight import resolve
from provision.removal.losses import used_resources
from provision.state.record import new_record
from provision.state.store import ClusterStore
from tests.aws_calls import Answer, ApiCall
from tests.infra.region import administrator
from tests.provision.test_record import a_record

pytestmark = pytest.mark.slow


def allow(target: Target, *statements: tuple[str, str, str]) -> None:
    """Make the instance profile `trainers`, whose role has these statements."""
    iam = administrator(target, "iam")
    iam.create_role(RoleName="trainers", AssumeRolePolicyDocument="{}")
    iam.create_instance_profile(InstanceProfileName="trainers")
    iam.add_role_to_instance_profile(InstanceProfileName="trainers", RoleName="trainers")
    document = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": effect, "Action": action, "Resource": resource}
            for effect, action, resource in statements
        ],
    }
    iam.put_role_policy(RoleName="trainers", PolicyName="data", PolicyDocument=json.dumps(document))


READS = (
    ("Allow", "s3:ListBucket", "arn:aws:s3:::my-data"),
    ("Allow", "s3:Get*", "arn:aws:s3:::my-data/*"),
)


def bucket(target: Target, name: str, region: str = "us-east-1") -> None:
    where = {} if region == "us-east-1" else {"LocationConstraint": region}
    configuration: Any = {"CreateBucketConfiguration": where} if where else {}
    administrator(target, "s3").create_bucket(Bucket=name, **configuration)


def resolved(target: Target, *buckets: str) -> Resolved:
    fields = {
        "name": "demo",
        "nodes": 2,
        "instance_type": "g6e.8xlarge",
        "instance_profile": "trainers",
        "storage": {"buckets": buckets},
    }
    cluster = Cluster.model_validate_json(json.dumps(fields))
    return resolve(cluster, ClusterStore(target))


def complaint(target: Target, *buckets: str) -> str:
    with pytest.raises(GpuctlError) as caught:
        resolved(target, *buckets)
    assert isinstance(caught.value, InputError)
    return str(caught.value)


def test_a_bucket_that_the_role_reads_is_fine_and_shown(empty_region: Target) -> None:
    bucket(empty_region, "my-data")
    allow(empty_region, *READS)
    planned = resolved(empty_region, "my-data")
    assert not any("bucket" in warning for warning in planned.warnings)
    assert storage_lines(planned)[0] == (
        "Storage: S3 bucket my-data, which the nodes read as trainers; mounted nowhere, and never"
        " changed or removed"
    )
    record = new_record(planned, a_record().created)
    assert list(used_resources(record)) == ["S3 bucket my-data with its data"]


def test_a_bucket_that_does_not_exist_is_an_error(empty_region: Target) -> None:
    allow(empty_region, ("Allow", "s3:*", "*"))
    assert complaint(empty_region, "no-data") == (
        "storage.buckets: there is no S3 bucket 'no-data'; `aws s3 ls` lists yours"
    )


def test_a_bucket_of_another_region_is_warned_of(empty_region: Target) -> None:
    bucket(empty_region, "far-data", "eu-west-1")
    allow(empty_region, ("Allow", "s3:*", "*"))
    assert (
        "storage.buckets: far-data is in eu-west-1, and the nodes are in us-east-1: AWS charges for"
        " each GB that they read from there"
    ) in resolved(empty_region, "far-data").warnings


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_the_region_of_a_bucket_that_the_caller_may_not_read_is_known(
    empty_region: Target, answer_calls: Callable[[Answer], None], region: str
) -> None:
    """As S3 answers for the bucket of another account, whose policy admits the nodes' role."""

    def refuse(call: ApiCall) -> Any:
        if call.operation != "HeadBucket":
            return call.ask()
        headers = {"x-amz-bucket-region": region}
        answer: Any = {
            "Error": {"Code": "403", "Message": "Forbidden"},
            "ResponseMetadata": {"HTTPStatusCode": 403, "HTTPHeaders": headers},
        }
        raise ClientError(answer, "HeadBucket")

    answer_calls(refuse)
    allow(empty_region, ("Allow", "s3:*", "*"))
    warnings = resolved(empty_region, "their-data").warnings
    assert any("their-data is in eu-west-1" in warning for warning in warnings) == (
        region == "eu-west-1"
    )


def test_what_the_role_may_not_read_is_an_error(empty_region: Target) -> None:
    """A denial of one folder is a denial of the bucket; ListBucket alone is not enough."""
    bucket(empty_region, "my-data")
    bucket(empty_region, "secrets")
    allow(empty_region, *READS, ("Allow", "s3:ListBucket", "arn:aws:s3:::secrets"))
    text = complaint(empty_region, "my-data", "secrets")
    assert text.startswith(
        "storage.buckets: the role of instance profile 'trainers' does not allow s3:GetObject on"
        " arn:aws:s3:::secrets/*; an administrator allows it in the role's policies"
    )
