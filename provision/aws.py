"""Boto3 clients for a Target, and the boundary at which AWS's errors become ours."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
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

from config.errors import CloudError
from config.target import Target

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient


@overload
def client(target: Target, service: Literal["ec2"]) -> "EC2Client": ...
@overload
def client(target: Target, service: Literal["ssm"]) -> "SSMClient": ...
@overload
def client(target: Target, service: Literal["sts"]) -> "STSClient": ...
def client(target: Target, service: Literal["ec2", "ssm", "sts"]) -> Any:
    """A client of `service` in the target's region, at its endpoint if it has one.

    Credentials in `target.environment` are used as they are: neither the user's AWS files nor the
    metadata service are asked then. Otherwise boto3 looks where it always does, with the target's
    AWS_PROFILE if it names one. A client may be used from many threads.
    """
    with aws_errors():
        return _session(target).client(
            service,
            endpoint_url=target.endpoint,
            config=Config(
                retries={"mode": "standard", "max_attempts": 5},
                connect_timeout=10,
                read_timeout=60,
                max_pool_connections=32,
                # An endpoint of the target's own is no stranger: no proxy in between.
                proxies={} if target.endpoint else None,
            ),
        )


def _session(target: Target) -> boto3.Session:
    settings = target.environment
    if "AWS_ACCESS_KEY_ID" not in settings:
        profile = settings.get("AWS_PROFILE") or None
        return boto3.Session(profile_name=profile, region_name=target.region)
    nothing: dict[str, Any] = {
        "profile": (None, [], None, None),
        "config_file": (None, None, os.devnull, None),
        "credentials_file": (None, None, os.devnull, None),
    }
    return boto3.Session(
        botocore_session=botocore.session.Session(session_vars=nothing),
        aws_access_key_id=settings["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=settings.get("AWS_SECRET_ACCESS_KEY"),
        aws_session_token=settings.get("AWS_SESSION_TOKEN"),
        region_name=target.region,
    )


_LATER = "AWS is at fault and retries did not help: try again in some minutes"
_QUOTA = (
    "ask for a higher vCPU quota (Service Quotas, Amazon EC2) or for fewer nodes:"
    " https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas"
)
_PERMISSION = "let an administrator allow this action for these credentials"
_CREDENTIALS = "renew your credentials: `aws sso login`, `aws configure` or AWS_PROFILE"
_CONFIGURATION = "change the cluster file; nothing of AWS's will make this pass"

REMEDIES = {
    "InsufficientInstanceCapacity": "name other zones in capacity.zones, or try again later",
    "InsufficientCapacity": "name other zones in capacity.zones, or try again later",
    "InsufficientHostCapacity": "name other zones in capacity.zones, or try again later",
    "InsufficientAddressCapacity": "try again later, or in another region",
    "InsufficientVolumeCapacity": "name other zones in capacity.zones, or try again later",
    "UnfulfillableCapacity": "name other zones, another type, or capacity.type: on-demand",
    "MaxSpotInstanceCountExceeded": _QUOTA,
    "SpotMaxPriceTooLow": "use capacity.type: on-demand",
    "VcpuLimitExceeded": _QUOTA,
    "InstanceLimitExceeded": _QUOTA,
    "AddressLimitExceeded": "release an Elastic IP address, or ask for a higher quota",
    "VpcLimitExceeded": "remove a VPC that nobody needs, or ask for a higher quota",
    "ReservationCapacityExceeded": "wait until the reservation's slots are free, or fewer nodes",
    "Unsupported": "name a zone in capacity.zones that offers the type",
    "InsufficientFreeAddressesInSubnet": "use a larger network.cidr",
    "InvalidParameterCombination": _CONFIGURATION,
    "InvalidParameterValue": _CONFIGURATION,
    "InvalidNetworkInterface": _CONFIGURATION,
    "InvalidAMIID": "name an image that exists in this region",
    "PendingVerification": "wait until AWS has verified the account for this region",
    "OptInRequired": "enable the region, or subscribe to the image, in the AWS console",
    "UnauthorizedOperation": _PERMISSION,
    "AccessDenied": _PERMISSION,
    "AccessDeniedException": _PERMISSION,
    "RequestLimitExceeded": "other programs use up the account's request rate: try again later",
    "ThrottlingException": "other programs use up the account's request rate: try again later",
    "ServiceUnavailable": _LATER,
    "InternalError": _LATER,
    "InternalFailure": _LATER,
    "Unavailable": _LATER,
    "ServerInternal": _LATER,
    "InvalidInstanceID.NotFound": "it is gone: `gpuctl status` tells what is left",
    "AuthFailure": _CREDENTIALS,
    "InvalidClientTokenId": _CREDENTIALS,
    "ExpiredToken": _CREDENTIALS,
    "ExpiredTokenException": _CREDENTIALS,
    "RequestExpired": "set this machine's clock, or renew your credentials",
    "SignatureDoesNotMatch": _CREDENTIALS,
    "DependencyViolation": "remove what others made in the cluster's VPC, then repeat",
}
"""What to do about AWS's codes; also for `Code.Detail`.

Source: "Error codes for the Amazon EC2 API" (2026-11-20) and what launches run into in practice.
"""

UNIVERSAL = frozenset(
    {
        "AuthFailure",
        "InvalidClientTokenId",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "NoCredentials",
        "EndpointConnection",
    }
)
"""Codes that every request meets alike: told once, however many requests met them."""


def remedy(code: str) -> str:
    """What to do about AWS's `code`; a general remark for codes that are not in the table."""
    family = code.partition(".")[0]
    known = REMEDIES.get(code) or REMEDIES.get(family)
    return known or f"look up {code or 'it'} in the EC2 API's list of error codes"


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
