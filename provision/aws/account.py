"""The AWS account, the credentials and the region of a command."""

from dataclasses import dataclass, replace

import boto3
from botocore.exceptions import NoCredentialsError

from config.errors import InputError
from config.target import Target
from provision.aws.clients import aws_errors, client, session


@dataclass(frozen=True)
class Caller:
    """The identity to which AWS attributes our requests."""

    account: str
    arn: str


def caller(target: Target) -> Caller:
    """Return the owner of the target's credentials.

    Raises CloudError if there are no credentials, or if AWS refuses them.
    """
    with aws_errors():
        who = client(target, "sts").get_caller_identity()
    return Caller(who["Account"], who["Arn"])


OTHER_ACCOUNT = "use that account's credentials: --profile, or AWS_PROFILE"
"""The remedy if a cluster is in another account than the credentials."""


def check_account(name: str, account: str, ours: str) -> None:
    """Raise InputError if the cluster is in another account than the credentials."""
    if account != ours:
        raise InputError(
            f"cluster '{name}' is in AWS account {account}, these credentials are of {ours}",
            OTHER_ACCOUNT,
        )


def resolve_credentials(target: Target) -> Target:
    """Return the target with explicit credentials: boto3 and the Pulumi engine then use the same.

    boto3 finds them once: environment, profile, SSO, assumed role. gpuctl keeps them only in the
    target's environment, which is never printed, and which the Pulumi engine inherits. A target
    that has them is returned unchanged. Raises CloudError if there are none.
    """
    if "AWS_ACCESS_KEY_ID" in target.environment:
        return target
    with aws_errors():
        found = session(target).get_credentials()
        if found is None:
            raise NoCredentialsError
        keys = found.get_frozen_credentials()
    environment = {k: v for k, v in target.environment.items() if k != "AWS_PROFILE"}
    environment["AWS_ACCESS_KEY_ID"] = str(keys.access_key)
    environment["AWS_SECRET_ACCESS_KEY"] = str(keys.secret_key)
    if keys.token:
        environment["AWS_SESSION_TOKEN"] = str(keys.token)
    return replace(target, environment=environment)


def credentials_source(target: Target) -> str:
    """Return where boto3 found the credentials: `env`, `sso`, `assume-role`, a file."""
    with aws_errors():
        found = session(target).get_credentials()
    return str(found.method) if found else "none"


def profile_region(profile: str | None) -> str | None:
    """Return the region of the user's AWS configuration (of `profile`, if given), or None."""
    with aws_errors():
        return boto3.Session(profile_name=profile).region_name
