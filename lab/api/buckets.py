"""S3 in the lab: moto's, with the rules of conditional writes for requests at the same time.

moto checks the condition of a write and then writes; here no other request to S3 comes between.
"""

from collections.abc import Mapping
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, unquote

from lab.authorization.checks import Check

SERVICE = "s3"

ONE_AT_A_TIME = Lock()
"""Held while moto answers a request to S3."""

_OF_OBJECTS = {
    "GET": "GetObject",
    "HEAD": "GetObject",
    "PUT": "PutObject",
    "DELETE": "DeleteObject",
    "POST": "PutObject",
}
_OF_BUCKETS = {
    "GET": "ListBucket",
    "HEAD": "ListBucket",
    "PUT": "CreateBucket",
    "DELETE": "DeleteBucket",
    "POST": "DeleteObject",
}


def check(environ: Mapping[str, Any]) -> Check:
    """Return the action of a request and its resource.

    Source: "Actions, resources, and condition keys for Amazon S3", Service Authorization Reference
    (2026-11-23). Of requests about settings of buckets the lab knows those of versions.
    """
    bucket, _, key = unquote(environ.get("PATH_INFO", "")).lstrip("/").partition("/")
    method = environ["REQUEST_METHOD"]
    if key:
        return Check(f"s3:{_OF_OBJECTS[method]}", f"arn:aws:s3:::{bucket}/{key}")
    if "versioning" in parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True):
        action = "PutBucketVersioning" if method == "PUT" else "GetBucketVersioning"
        return Check(f"s3:{action}", f"arn:aws:s3:::{bucket}")
    return Check(f"s3:{_OF_BUCKETS[method]}", f"arn:aws:s3:::{bucket}")
