"""Objects in the bucket of a team: read, write if unchanged, remove, list.

S3 decides about each conditional write: of several writers that saw the same object one wins, and
the others get 412 or, while two requests overlap, 409 ("Conditional writes", Amazon S3 User Guide,
2026-11-23).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from config.bucket import ACTIONS, Bucket, Changed
from config.command_text import command_text
from config.errors import CloudError
from config.foreign import MOST, Malformed, too_long
from config.target import Target
from provision.aws.clients import DENIED, aws_errors, client

_ATTEMPTS = 4
"""A lock is renewed again anyway, and a command without a network says so soon."""

_LOST = ("PreconditionFailed", "ConditionalRequestConflict")
_UNKNOWN = ("NoSuchKey", "404")


@dataclass(frozen=True)
class Stored:
    """An object's text and ETag, and the time since its last write by the clock of S3."""

    text: str
    etag: str
    age: timedelta


class Objects:
    """The objects of a target's bucket.

    Every method raises CloudError, with what to do, if the bucket cannot be used.
    """

    def __init__(self, target: Target, bucket: Bucket) -> None:
        self.bucket = bucket
        self._s3 = client(
            replace(
                target,
                region=bucket.region or target.region,
                endpoint=bucket.endpoint or target.endpoint,
            ),
            "s3",
            _ATTEMPTS,
        )

    def url(self, key: str) -> str:
        """Return the object's address, as messages and AWS's own command write it."""
        return f"s3://{self.bucket.name}/{key}"

    def read(self, key: str) -> Stored | None:
        """Return the object, or None if there is none.

        Raises Malformed for one of more than 1 MiB, which is no record, or that is no text.
        """
        with _explain(self.bucket):
            try:
                answer = self._s3.get_object(Bucket=self.bucket.name, Key=key)
            except ClientError as error:
                if _code(error) in _UNKNOWN:
                    return None
                raise
            body = answer["Body"].read(MOST + 1)
            answer["Body"].close()
        if len(body) > MOST:
            raise Malformed(too_long(MOST))
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise Malformed("it is no text in UTF-8") from None
        return Stored(text, answer["ETag"], _age(answer))

    def write(self, key: str, text: str, etag: str | None) -> str:
        """Write the object if it still has this ETag, or if there is none for None.

        Returns the new ETag; raises Changed if somebody else was first.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        with _explain(self.bucket):
            try:
                answer = self._s3.put_object(
                    Bucket=self.bucket.name, Key=key, Body=text.encode(), **condition
                )
                return str(answer["ETag"])
            except ClientError as error:
                if _code(error) not in (*_LOST, *_UNKNOWN):
                    raise
        # botocore repeats a request whose answer was lost: the first try may have written this.
        try:
            now = self.read(key)
        except Malformed:
            now = None  # it is not this text
        if now is None or now.text != text:
            raise Changed(key)
        return now.etag

    def read_file(self, key: str, path: Path, most: int) -> int:
        """Write the object, which exists, to the file; make its folder; return the bytes written.

        Raises Malformed if it has more than `most`.
        """
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        size = 0
        with _explain(self.bucket), path.open("wb") as file:
            body = self._s3.get_object(Bucket=self.bucket.name, Key=key)["Body"]
            while data := body.read(1 << 20):
                size += len(data)
                if size > most:
                    body.close()
                    raise Malformed(too_long(most))
                file.write(data)
        return size

    def write_file(self, key: str, path: Path) -> None:
        """Write the file to the object; raise Changed if there is one."""
        with path.open("rb") as file, _explain(self.bucket):
            try:
                self._s3.put_object(Bucket=self.bucket.name, Key=key, Body=file, IfNoneMatch="*")
            except ClientError as error:
                if _code(error) not in _LOST:
                    raise
                raise Changed(key) from None

    def remove(self, key: str) -> None:
        """Remove the object, if there is one."""
        with _explain(self.bucket):
            self._s3.delete_object(Bucket=self.bucket.name, Key=key)

    def keys(self, prefix: str) -> list[str]:
        """Return the keys of all objects that begin with the prefix, in their order."""
        with _explain(self.bucket):
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket.name, Prefix=prefix
            )
            return [item["Key"] for page in pages for item in page.get("Contents", ())]


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _age(answer: Any) -> timedelta:
    now: datetime = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    age: timedelta = now - answer["LastModified"]
    return age


@contextmanager
def _explain(bucket: Bucket) -> Iterator[None]:
    """Name the bucket in errors of the block, with a remedy for those of S3."""
    try:
        with aws_errors():
            yield
    except CloudError as error:
        hint = error.hint
        if error.code == "NoSuchBucket":
            hint = (
                f"create it once for the team: {command_text('aws s3 mb s3://{}', bucket.name)},"
                " or correct `backend`"
            )
        elif error.code in DENIED:
            hint = f"allow {', '.join(ACTIONS)}: `gpuctl iam-policy` prints the policy"
        raise CloudError(
            f"the shared state in {bucket.url} cannot be used: {error.message}", hint, error.code
        ) from error
