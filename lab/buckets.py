"""Buckets of the lab's S3, for the state that a team shares."""

from lab.access_key import ADMINISTRATOR, AccessKey


def make_bucket(name: str, url: str, key: AccessKey) -> None:
    """Make a bucket that keeps versions in the lab with the API at `url`; keep one that exists."""
    import boto3  # only a shared backend needs it

    s3 = boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=key.key_id,
        aws_secret_access_key=key.secret,
        aws_session_token=ADMINISTRATOR,  # a policy that a person set limits gpuctl, not the lab
    )
    if name not in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}:
        s3.create_bucket(Bucket=name)
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
