"""The check of request signatures, and AWS's responses to requests that fail it.

Source of the rules: "Elements of an AWS API request signature" and "Troubleshoot Signature Version
4 signed requests", IAM User Guide; of codes and HTTP statuses: "Common Error Types", EC2 API
Reference (read 2026-11-22). botocore computes the signature here as it does for clients.
"""

import hmac
import io
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from lab.access_key import AccessKey
from lab.api.error_answers import ErrorAnswer, error_answer

OLDEST_S = 300.0
"""Seconds that a request's date may differ from now: "within five minutes of the time stamp"."""

_HEADER = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<id>[^/]+)/(?P<date>\d{8})/(?P<region>[^/]+)/"
    r"(?P<service>[^/]+)/aws4_request, ?SignedHeaders=(?P<signed>[^,]+), ?"
    r"Signature=(?P<signature>[0-9a-f]{64})"
)
_DATE = "%Y%m%dT%H%M%SZ"
_TOKEN = re.compile(r"(\d+(?:\.\d+)?)(?:\+(\d+))?")


@dataclass(frozen=True)
class _Reason:
    """A reason to refuse, with the codes of EC2, of other XML services and of JSON services."""

    ec2: str
    xml: str
    json: str
    text: str
    ec2_text: str = "AWS was not able to validate the provided access credentials"


_MISSING = _Reason(
    "AuthFailure",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "Request is missing Authentication Token",
    "AWS was not able to authenticate the request: access credentials are missing",
)
_UNKNOWN_KEY = _Reason(
    "AuthFailure",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "The security token included in the request is invalid.",
)
_EXPIRED = _Reason(
    "RequestExpired",
    "RequestExpired",
    "InvalidSignatureException",
    "Signature expired: the request's date is more than five minutes from now.",
    "Request has expired.",
)
_ENDED = _Reason(
    "RequestExpired",
    "ExpiredToken",
    "ExpiredTokenException",
    "The security token included in the request is expired",
    "Request has expired.",
)
_MISMATCH = _Reason(
    "AuthFailure",
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "The request signature we calculated does not match the signature you provided. Check your AWS"
    " Secret Access Key and signing method. Consult the service documentation for details.",
)


def refusal(environ: dict[str, Any], key: AccessKey) -> ErrorAnswer | None:
    """Return AWS's response to a WSGI request that `key` did not sign; None if it is signed.

    This function reads the body once and stores it in `environ`, so that the application reads
    exactly the bytes that were signed.
    """
    reason = _reason(environ, key)
    return None if reason is None else _answer(environ, reason)


def expiry(environ: dict[str, Any], end: datetime | None) -> ErrorAnswer | None:
    """Return AWS's response to a request whose credentials ended at `end`; None if they last.

    Temporary credentials of a lab carry the time of their issue as a session token (seconds since
    1970), and `+SECONDS` if they last only so long. Those that were issued after `end` are valid,
    like those of a user who signed in again.
    """
    now = datetime.now(UTC).timestamp()
    token = _TOKEN.fullmatch(environ.get("HTTP_X_AMZ_SECURITY_TOKEN", ""))
    issued = float(token[1]) if token else 0.0
    has_ended = end is not None and issued < end.timestamp() <= now
    if token and token[2]:
        has_ended = has_ended or issued + int(token[2]) <= now
    return _answer(environ, _ENDED) if has_ended else None


def _reason(environ: dict[str, Any], key: AccessKey) -> _Reason | None:
    header = _HEADER.fullmatch(environ.get("HTTP_AUTHORIZATION", ""))
    if header is None:
        return _MISSING
    # Compare bytes: compare_digest rejects text that is not ASCII.
    if not hmac.compare_digest(header["id"].encode(), key.key_id.encode()):
        return _UNKNOWN_KEY
    date = environ.get("HTTP_X_AMZ_DATE", "")
    if not _is_recent(date) or date[:8] != header["date"]:
        return _EXPIRED
    body = _take_body(environ)
    signed = {name: _header(environ, name) for name in header["signed"].split(";")}
    if not _required(environ) <= signed.keys() or None in signed.values():
        return _MISMATCH
    if environ.get("HTTP_X_AMZ_CONTENT_SHA256", sha256(body).hexdigest()) != (
        sha256(body).hexdigest()
    ):
        return _MISMATCH
    url = f"http://{environ.get('HTTP_HOST', '')}{environ.get('REQUEST_URI', '')}"
    request = AWSRequest(environ["REQUEST_METHOD"], url, headers=signed, data=body)
    request.context["timestamp"] = date
    # S3's clients sign the path as it is sent; others normalize and quote it again.
    kind = S3SigV4Auth if header["service"] == "s3" else SigV4Auth
    signer = kind(Credentials(key.key_id, key.secret), header["service"], header["region"])
    text = signer.string_to_sign(request, signer.canonical_request(request))
    same = hmac.compare_digest(signer.signature(text, request), header["signature"])
    return None if same else _MISMATCH


def _is_recent(date: str) -> bool:
    try:
        at = datetime.strptime(date, _DATE).replace(tzinfo=UTC)
    except ValueError:
        return False
    return abs((datetime.now(UTC) - at).total_seconds()) <= OLDEST_S


def _take_body(environ: dict[str, Any]) -> bytes:
    """Read the body and put it back, so that later readers cannot read more than it."""
    length = environ.get("CONTENT_LENGTH") or "0"
    body: bytes = environ["wsgi.input"].read(int(length)) if length.isdigit() else b""
    environ["wsgi.input"] = io.BytesIO(body)
    environ["CONTENT_LENGTH"] = str(len(body))
    environ.pop("HTTP_TRANSFER_ENCODING", None)  # AWS clients send no chunks
    environ.pop("wsgi.input_terminated", None)
    return body


def _required(environ: dict[str, Any]) -> set[str]:
    """Return the headers that a signature must cover: the host and all of AWS's headers."""
    names = {name[5:].lower().replace("_", "-") for name in environ if name[:5] == "HTTP_"}
    return {"host", *(name for name in names if name.startswith("x-amz-"))}


def _header(environ: dict[str, Any], name: str) -> str | None:
    wsgi = name.upper().replace("-", "_")
    plain = wsgi in ("CONTENT_TYPE", "CONTENT_LENGTH")
    value = environ.get(wsgi if plain else f"HTTP_{wsgi}")
    return None if value is None else str(value)


def _answer(environ: dict[str, Any], reason: _Reason) -> ErrorAnswer:
    """Return the response in the wire form of the service that the request addresses."""
    header = _HEADER.fullmatch(environ.get("HTTP_AUTHORIZATION", ""))
    service = header["service"] if header else "ec2"
    if service in ("sts", "iam", "s3"):
        return error_answer(service, reason.xml, reason.text, "403 Forbidden")
    if service != "ec2" or "HTTP_X_AMZ_TARGET" in environ:
        return error_answer("a JSON service", reason.json, reason.text, "403 Forbidden")
    status = "401 Unauthorized" if reason.ec2 == "AuthFailure" else "400 Bad Request"
    return error_answer(service, reason.ec2, reason.ec2_text, status)
