"""Boto3 clients for a Target, and the boundary at which AWS's errors become ours."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, overload

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from botocore.loaders import Loader, create_loader

from config.catalogue.aws_codes import remedy
from config.errors import CloudError
from config.target import Target

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient

ATTEMPTS = 8
"""How often a request is made before AWS's throttling or failure is told; waits up to 20 s each
(https://boto3.amazonaws.com/v1/documentation/api/latest/guide/retries.html, standard mode)."""

PRICING_REGION = "us-east-1"
"""https://docs.aws.amazon.com/general/latest/gr/billing.html (price list), 2026-11-20."""

_ADVICE = ("service-quotas", "pricing")  # an answer is welcome, but nothing waits long for it


@overload
def client(target: Target, service: Literal["ec2"], attempts: int = ...) -> "EC2Client": ...
@overload
def client(target: Target, service: Literal["ssm"]) -> "SSMClient": ...
@overload
def client(target: Target, service: Literal["sts"]) -> "STSClient": ...
@overload
def client(
    target: Target, service: Literal["service-quotas", "pricing", "efs", "fsx", "iam"]
) -> Any: ...
def client(
    target: Target,
    service: Literal["ec2", "ssm", "sts", "service-quotas", "pricing", "efs", "fsx", "iam"],
    attempts: int = ATTEMPTS,
) -> Any:
    """A client of `service` in the target's region, at its endpoint if it has one.

    Credentials in `target.environment` are used as they are: neither the user's AWS files nor the
    metadata service are asked then. Otherwise boto3 looks where it always does, with the target's
    AWS_PROFILE if it names one. Throttling and AWS's own failures are retried with jitter, a launch
    with the ClientToken of its first try, `attempts` times in all. A client may be used from many
    threads, and is made once for the same keys and place: that takes 20 ms of a processor.
    """
    with aws_errors():
        if "AWS_ACCESS_KEY_ID" not in target.environment:
            return _client(session(target), service, target.endpoint, attempts)
        with _MAKING:  # boto3 makes no clients in several threads at once
            return _known_client(_Account.of(target), service, target.endpoint, attempts)


@dataclass(frozen=True)
class _Account:
    """What of a target decides with which keys and where its clients ask."""

    region: str
    settings: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, target: Target) -> "_Account":
        return cls(target.region, frozenset(target.environment.items()))


_MAKING = Lock()


@lru_cache(maxsize=32)
def _known_client(account: _Account, service: str, endpoint: str | None, attempts: int) -> Any:
    return _client(_known_session(account), service, endpoint, attempts)


@lru_cache(maxsize=8)
def _known_session(account: _Account) -> boto3.Session:
    return _session(account.region, dict(account.settings))


def forget_clients() -> None:
    """Make every client anew: what is measured is then what a command takes."""
    _known_client.cache_clear()
    _known_session.cache_clear()


def _client(asking: boto3.Session, service: str, endpoint: str | None, attempts: int) -> Any:
    needed = service not in _ADVICE
    return asking.client(
        service,  # type: ignore[call-overload]
        # The Pricing API is in few regions only, and speaks for all of them.
        region_name=PRICING_REGION if service == "pricing" else None,
        endpoint_url=endpoint,
        config=Config(
            # `max_attempts` would be one more: it counts what comes after the first.
            retries={"mode": "standard", "total_max_attempts": attempts if needed else 3},
            connect_timeout=10 if needed else 3,
            read_timeout=60 if needed else 10,
            max_pool_connections=32,
            # An endpoint of the target's own is no stranger: no proxy in between.
            proxies={} if endpoint else None,
        ),
    )


_NO_FILES: dict[str, Any] = {
    "profile": (None, [], None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}


def session(target: Target) -> boto3.Session:
    """boto3 as the target wants it: its keys and nothing else, or its profile, or the user's."""
    return _session(target.region, target.environment)


def _session(region: str, settings: Mapping[str, str]) -> boto3.Session:
    has_keys = "AWS_ACCESS_KEY_ID" in settings
    inner = botocore.session.Session(session_vars=_NO_FILES if has_keys else None)
    inner.register_component("data_loader", _models())
    if not has_keys:
        profile = settings.get("AWS_PROFILE") or None
        return boto3.Session(botocore_session=inner, profile_name=profile, region_name=region)
    return boto3.Session(
        botocore_session=inner,
        aws_access_key_id=settings["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=settings.get("AWS_SECRET_ACCESS_KEY"),
        aws_session_token=settings.get("AWS_SESSION_TOKEN"),
        region_name=region,
    )


@cache
def _models() -> Loader:
    """AWS's descriptions of its services, read once: EC2's alone takes a tenth of a second."""
    return create_loader()


DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
"""Codes by which services say that the credentials may not ask; EC2 has the last."""


def call_unless_gone(ask: Callable[[], Any], gone: Collection[str]) -> Any:
    """The answer; None where AWS refuses with one of the codes `gone`: it knows it no more."""
    try:
        with aws_errors():
            return ask()
    except CloudError as error:
        if error.code in gone:
            return None
        raise


_CREDENTIALS = remedy("ExpiredToken")

UNIVERSAL = frozenset(
    {
        "AuthFailure",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "InvalidSignatureException",
        "NoCredentials",
        "EndpointConnection",
    }
)
"""Codes that every request meets alike: told once, however many requests met them."""


@contextmanager
def aws_errors(zone: str = "") -> Iterator[None]:
    """What boto3 raises becomes a CloudError with AWS's code, the zone if given, and a remedy."""
    try:
        yield
    except ClientError as error:
        told = error.response.get("Error", {})
        code = str(told.get("Code", ""))
        place = f" in {zone}" if zone else ""
        text = str(told.get("Message") or "AWS gives no reason").rstrip(".")
        raise CloudError(
            f"AWS refused {error.operation_name}{place}: {code}: {text}", remedy(code), code
        ) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise CloudError(
            "no AWS credentials were found",
            "run `aws configure`, or set AWS_PROFILE or AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY",
            "NoCredentials",
        ) from error
    except (SSOError, TokenRetrievalError) as error:
        raise CloudError(f"AWS sign-in: {error}", _CREDENTIALS, "ExpiredToken") from error
    except ProfileNotFound as error:
        raise CloudError(
            f"{error}", "set AWS_PROFILE to one that `aws configure list-profiles` names"
        ) from error
    except NoRegionError as error:
        raise CloudError(
            "no AWS region is known", "set `region` in the file, --region or AWS_REGION"
        ) from error
    except (EndpointConnectionError, ConnectionError, HTTPClientError) as error:
        raise CloudError(
            f"AWS cannot be reached: {error}",
            "see whether the network is up and whether the region's name is right",
            "EndpointConnection",
        ) from error
    except BotoCoreError as error:
        raise CloudError(
            f"the request to AWS failed: {error}", "see `aws sts get-caller-identity`"
        ) from error
