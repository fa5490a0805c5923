"""botocore clients for a Target, and the conversion of AWS's errors to gpuctl's."""

import gzip
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, overload

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
from botocore.loaders import JSONFileLoader, Loader
from botocore.parsers import ResponseParserError

from config.catalogue.aws_codes import remedy
from config.errors import CloudError
from config.target import Target
from provision.aws.calls import record_calls

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

    If `target.environment` has credentials, only they are used: botocore reads neither the user's
    AWS files nor the metadata service. Otherwise it searches in its usual order, with the target's
    AWS_PROFILE if it names one, and renews those of SSO and roles before they end. Throttling and
    AWS's own failures are retried with jitter, at most `attempts` tries in all; a launch keeps the
    ClientToken of its first try. A client may be used by many threads. It is cached for the same
    credentials, region and endpoint, because creating one takes 20 ms of CPU time.
    """
    with aws_errors(), _CREATING:  # botocore cannot create clients in several threads at once
        return _cached_client(_Account.of(target), service, target.endpoint, attempts)


@dataclass(frozen=True)
class _Account:
    """All that determines the credentials and the region of a target's clients.

    `found` is empty if the target has credentials. Otherwise it has this process's AWS settings and
    the times of the user's AWS files, so that a changed file counts from the next client on.
    """

    region: str
    settings: frozenset[tuple[str, str]]
    found: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, target: Target) -> "_Account":
        has_keys = "AWS_ACCESS_KEY_ID" in target.environment
        found = frozenset() if has_keys else frozenset(_surroundings())
        return cls(target.region, frozenset(target.environment.items()), found)


_FILES = {
    "AWS_CONFIG_FILE": "~/.aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
}


def _surroundings() -> Iterator[tuple[str, str]]:
    """Yield what botocore searches for credentials, as far as known without asking anybody."""
    yield from ((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))
    for variable, default in _FILES.items():
        path = Path(os.environ.get(variable, default)).expanduser()
        with suppress(OSError):  # without the file there is nothing to notice
            yield str(path), str(path.stat().st_mtime_ns)


_CREATING = Lock()


@lru_cache(maxsize=32)
def _cached_client(account: _Account, service: str, endpoint: str | None, attempts: int) -> Any:
    return _client(_cached_session(account), service, endpoint, attempts)


@lru_cache(maxsize=8)
def _cached_session(account: _Account) -> botocore.session.Session:
    return _session(account.region, dict(account.settings))


def forget_clients() -> None:
    """Empty the cache of clients, so that a measurement includes their creation."""
    _cached_client.cache_clear()
    _cached_session.cache_clear()


def _client(
    opened: botocore.session.Session, service: str, endpoint: str | None, attempts: int
) -> Any:
    needed = service not in _ADVICE
    return opened.create_client(
        service,
        # The Pricing API exists in few regions, and has the prices of all.
        region_name=PRICING_REGION if service == "pricing" else None,
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


_NO_FILES: dict[str, Any] = {
    "profile": (None, [], None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}


def session(target: Target) -> botocore.session.Session:
    """Return a session with the target's credentials alone, its profile, or the user's.

    It is the one of the target's clients: a role is assumed once, and renewed in one place.
    """
    with _CREATING:
        return _cached_session(_Account.of(target))


def _session(region: str, settings: Mapping[str, str]) -> botocore.session.Session:
    has_keys = "AWS_ACCESS_KEY_ID" in settings
    made = botocore.session.Session(session_vars=_NO_FILES if has_keys else None)
    made.register_component("data_loader", _models())
    record_calls(made)
    made.set_config_variable("region", region)
    if has_keys:
        made.set_credentials(
            settings["AWS_ACCESS_KEY_ID"],
            settings.get("AWS_SECRET_ACCESS_KEY", ""),
            settings.get("AWS_SESSION_TOKEN"),
        )
    elif profile := settings.get("AWS_PROFILE"):
        made.set_config_variable("profile", profile)
    return made


class _DescriptionFiles(JSONFileLoader):
    """The reader of AWS's service descriptions, into plain dicts.

    botocore's own reads them into OrderedDict: a client of EC2 then takes 89 instead of 62 ms of
    CPU time (botocore 1.44.5, 2026-11-23). Plain dicts keep the order too.
    """

    def load_file(self, file_path: str) -> Any:
        """Return the description at the path, which has no ending; None without one."""
        for ending, read in ((".json", bytes), (".json.gz", gzip.decompress)):
            path = Path(file_path + ending)
            if path.is_file():
                return json.loads(read(path.read_bytes()))
        return None


@cache
def _models() -> Loader:
    """Return AWS's service descriptions, cached."""
    return Loader(file_loader=_DescriptionFiles())


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
    """Convert botocore's errors to CloudErrors with AWS's code, the zone if given, and a remedy."""
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
        raise CloudError(
            f"AWS cannot be reached: {error}",
            "check that the network is up and that the region's name is right",
            "EndpointConnection",
        ) from error
    except (BotoCoreError, ResponseParserError) as error:
        # The other lines are a response that nobody can read.
        reason = str(error).partition("\n")[0].rstrip(":")
        raise CloudError(
            f"the request to AWS failed: {reason}",
            "run `aws sts get-caller-identity` to see whether the AWS CLI fails too",
        ) from error
