"""boto3 clients for a Target, concurrent requests, and AWS's errors as gpuctl's."""

import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, overload
from urllib.parse import urlsplit

import boto3.session
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigParseError,
    ConnectionError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
    SSLError,
    SSOError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from config.catalogue.aws_codes import remedy
from config.errors import CloudError
from config.folders import user_path
from config.target import NO_AWS_FILES, Target
from provision.aws.calls import log_calls, record_calls
from provision.aws.credentials import (
    AWS_FILES,
    load_credentials,
    unknown_profile,
    unparsed_file,
    unusable_files,
    wrong_setting,
    wrong_variables,
)

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient


ATTEMPTS = 8
"""The tries of a request before gpuctl reports throttling or a failure of AWS; up to 20 s between
two (https://boto3.amazonaws.com/v1/documentation/api/latest/guide/retries.html, standard mode)."""

PRICING_REGION = "us-east-1"
"""https://docs.aws.amazon.com/general/latest/gr/billing.html (price list), 2026-11-20."""

_ADVICE = ("service-quotas", "pricing")  # commands work without their answers: short timeouts


@overload
def client(target: Target, service: Literal["ec2"], attempts: int = ...) -> "EC2Client": ...
@overload
def client(target: Target, service: Literal["ssm"]) -> "SSMClient": ...
@overload
def client(target: Target, service: Literal["sts"]) -> "STSClient": ...
@overload
def client(
    target: Target,
    service: Literal["service-quotas", "pricing", "efs", "fsx", "iam", "s3"],
    attempts: int = ...,
) -> Any: ...
def client(
    target: Target,
    service: Literal["ec2", "ssm", "sts", "service-quotas", "pricing", "efs", "fsx", "iam", "s3"],
    attempts: int = ATTEMPTS,
) -> Any:
    """Return a client of `service` in the target's region, at the target's endpoint if it has one.

    Throttling and AWS's own failures are retried with jitter, at most `attempts` tries in all; a
    launch keeps the ClientToken of its first try. A client may be used by many threads. It is
    cached for the same credentials, region and endpoint.
    """
    try:
        with aws_errors(), _CREATING:
            made = _client(session(target), service, target.region, target.endpoint, attempts)
            _ = urlsplit(made.meta.endpoint_url).port  # botocore would fail at the first request
            return made
    except ValueError as error:
        raise wrong_setting(error) from error


def session(target: Target) -> boto3.session.Session:
    """Return the session of the target's clients, the same for all regions.

    If `target.environment` has credentials, only they are used: boto3 reads neither the user's AWS
    files nor the metadata service. Otherwise it searches in its usual order, with the target's
    AWS_PROFILE if it names one. A role is assumed once, with one MFA code, and boto3 renews it. A
    change of the user's AWS files or variables counts from the next call on.
    """
    given = target.environment
    has_keys = "AWS_ACCESS_KEY_ID" in given
    key = frozenset((*given.items(), *(() if has_keys else _surroundings())))
    with _CREATING:
        if key not in _sessions:
            # A session of boto3's own fails if the user's AWS_PROFILE does not exist.
            core = botocore.session.Session(NO_AWS_FILES if has_keys else None)
            opened = boto3.session.Session(
                given.get("AWS_ACCESS_KEY_ID"),
                given.get("AWS_SECRET_ACCESS_KEY"),
                given.get("AWS_SESSION_TOKEN"),
                # The endpoint of roles is that of the first region; clients name their own.
                region_name=target.region,
                botocore_session=core,
                profile_name=None if has_keys else given.get("AWS_PROFILE"),
            )
            if not has_keys:
                load_credentials(core)
            log_calls(opened)
            record_calls(opened)
            _sessions[key] = opened
        return _sessions[key]


_CREATING = RLock()
"""A session of boto3 cannot create clients in several threads at once."""

_sessions: dict[frozenset[tuple[str, str]], boto3.session.Session] = {}


def _surroundings() -> Iterator[tuple[str, str]]:
    """Yield this process's AWS settings and the times of the user's AWS files."""
    yield from ((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))
    for variable, default in AWS_FILES.items():
        path = user_path(os.environ.get(variable, default))
        with suppress(OSError):  # without the file there is nothing to notice
            yield str(path), str(path.stat().st_mtime_ns)


@lru_cache(maxsize=128)
def _client(
    opened: boto3.session.Session, service: str, region: str, endpoint: str | None, attempts: int
) -> Any:
    needed = service not in _ADVICE
    return opened.client(  # type: ignore[call-overload]
        service,
        # The Pricing API exists in few regions, and has the prices of all.
        region_name=PRICING_REGION if service == "pricing" else region,
        endpoint_url=endpoint,
        config=Config(
            # `max_attempts` would not count the first try.
            retries={"mode": "standard", "total_max_attempts": attempts if needed else 3},
            connect_timeout=10 if needed else 3,
            read_timeout=60 if needed else 10,
            max_pool_connections=32,
            # A target's own endpoint is reached directly, without the user's proxy.
            proxies={} if endpoint else None,
            # Such an endpoint has no host name per bucket.
            s3={"addressing_style": "path"} if endpoint else None,
        ),
    )


def forget_clients() -> None:
    """Empty the cache of clients, so that a measurement includes their creation."""
    with _CREATING:
        _client.cache_clear()
        _sessions.clear()


DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
"""The codes of a request that the credentials do not allow; EC2 uses the last one."""


def call_unless_gone(ask: Callable[[], Any], gone: Collection[str]) -> Any:
    """Return what `ask` returns, or None if AWS refuses with one of the codes `gone`."""
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
"""The codes of errors that concern all requests alike; gpuctl reports each of them once."""


@contextmanager
def aws_errors(zone: str = "") -> Iterator[None]:
    """Convert boto3's errors to CloudErrors with AWS's code, the zone if given, and a remedy."""
    try:
        yield
    except ClientError as error:
        answer = error.response.get("Error", {})
        code = str(answer.get("Code", ""))
        place = f" in {zone}" if zone else ""
        text = str(answer.get("Message") or "AWS gives no reason").rstrip(".")
        raise CloudError(
            f"AWS refused {error.operation_name}{place}: {code}: {text}", remedy(code), code
        ) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        unusable = "".join(f"; {problem}" for problem in unusable_files())
        raise CloudError(
            f"no AWS credentials were found{unusable}",
            "run `aws configure`, or set AWS_PROFILE or AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY",
            "NoCredentials",
        ) from error
    except (SSOError, TokenRetrievalError) as error:
        raise CloudError(f"AWS sign-in: {error}", _CREDENTIALS, "ExpiredToken") from error
    except ProfileNotFound as error:
        given = getattr(error, "kwargs", {})
        raise unknown_profile(str(given.get("profile", ""))) from error
    except NoRegionError as error:
        raise CloudError(
            "no AWS region is known", "set `region` in the file, --region or AWS_REGION"
        ) from error
    except RuntimeError as error:
        # botocore 1.4x has no class for this: RefreshableCredentials, "still expired" (2026-11-22).
        if "credentials are still expired" not in str(error):
            raise
        raise CloudError(
            "the AWS credentials have expired, and are the same after renewal",
            _CREDENTIALS,
            "ExpiredToken",
        ) from error
    except (EndpointConnectionError, ConnectionError, HTTPClientError) as error:
        raise _not_sent(error) from None  # its text may have the session token
    except (BotoCoreError, ResponseParserError) as error:
        raise _failed(error) from error


def _failed(error: BotoCoreError | ResponseParserError) -> CloudError:
    """Return the error for what botocore has no better class for."""
    if isinstance(error, ConfigParseError):
        return unparsed_file(str(getattr(error, "kwargs", {}).get("path")))
    # The other lines are a response that nobody can read.
    reason = str(error).partition("\n")[0].rstrip(":.")
    named = " and ".join(wrong_variables(reason))
    other = "run `aws sts get-caller-identity` to see whether the AWS CLI fails too"
    return CloudError(
        f"the request to AWS failed: {reason}", f"correct {named}" if named else other
    )


def _not_sent(error: BotoCoreError) -> CloudError:
    """Return the error about a request that did not reach AWS."""
    if "Invalid header value" in str(error):  # http.client goes on with the session token
        return CloudError(
            "the AWS credentials have a character that no request may have, such as a line break",
            "correct the access key ID or the session token, in their variables or in the profile",
            "NoCredentials",
        )
    hint = "check that the network is up and that the region's name is right"
    proxies = [name for name in ("https_proxy", "HTTPS_PROXY") if os.environ.get(name)]
    if isinstance(error, SSLError):
        hint = (
            "set AWS_CA_BUNDLE to a file with the certificates that your network or its proxy uses"
        )
    elif proxies and (isinstance(error, ProxyConnectionError) or "parse" in str(error)):
        hint = f"correct or unset {proxies[0]}: AWS is reached through that proxy"
    return CloudError(f"AWS cannot be reached: {error}", hint, "EndpointConnection")


@contextmanager
def request_pool(at_once: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool for `at_once` requests at a time; wait for all of them at the block's end.

    After Ctrl-C it does not wait: a request to a service that throttles may retry for a minute.
    """
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="ask")
    try:
        yield pool
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()
