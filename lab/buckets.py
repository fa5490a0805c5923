"""Buckets of the lab's S3, for the state that a team shares."""

import boto3.session
import botocore.session

from config.target import NO_AWS_FILES
from lab.access_key import ADMINISTRATOR, AccessKey


def make_bucket(name: str, url: str, key: AccessKey) -> None:
    """Make a bucket that keeps versions in the lab with the API at `url`; keep one that exists."""
    session = boto3.session.Session(
        key.key_id,
        key.secret,
        ADMINISTRATOR,  # a policy that a person set limits gpuctl, not the lab
        region_name="us-east-1",
        # A session of boto3's own fails if the user's AWS_PROFILE does not exist.
        botocore_session=botocore.session.Session(NO_AWS_FILES),
    )
    s3 = session.client("s3", endpoint_url=url)
    if name not in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}:
        s3.create_bucket(Bucket=name)
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
