"""The S3 bucket of a team: what `backend: s3://BUCKET/PREFIX?region=…` names.

The form is the one that Pulumi's engine reads
(https://www.pulumi.com/docs/iac/concepts/state-and-backends/, 2026-11-23).
"""

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

ACTIONS = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket")
"""What gpuctl and Pulumi's engine do in the bucket."""


class Changed(Exception):
    """Somebody else wrote or removed an object since it was read."""


@dataclass(frozen=True)
class Bucket:
    """A bucket's name, and the prefix under which everything is.

    `region` is empty for the cluster's region, `endpoint` for AWS.
    """

    name: str
    prefix: str = ""
    region: str = ""
    endpoint: str = ""

    @property
    def url(self) -> str:
        """The bucket and its prefix, as messages and AWS's own command write them."""
        return f"s3://{self.name}/{self.prefix}".rstrip("/")

    def key(self, *parts: str) -> str:
        """Return the key of an object of gpuctl; Pulumi's are under `.pulumi/`."""
        return "/".join((*self.prefix.split("/"), "gpuctl", *parts)).lstrip("/")


def bucket_of(backend: str | None) -> Bucket | None:
    """Return the bucket of a backend's URL; None for a backend that is no bucket."""
    parts = urlsplit(backend or "")
    if parts.scheme != "s3" or not parts.netloc:
        return None
    query = dict(parse_qsl(parts.query))
    endpoint = query.get("endpoint", "")
    if endpoint and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    return Bucket(parts.netloc, parts.path.strip("/"), query.get("region", ""), endpoint)


def engine_url(backend: str, region: str, endpoint: str | None) -> str:
    """Return the URL for Pulumi's engine: with the region, and with a target's own endpoint."""
    parts = urlsplit(backend)
    query = dict(parse_qsl(parts.query))
    query.setdefault("region", region)
    if endpoint is not None and "endpoint" not in query:
        query |= {"endpoint": endpoint, "s3ForcePathStyle": "true"}
    return parts._replace(query=urlencode(query, safe=":/")).geturl()
