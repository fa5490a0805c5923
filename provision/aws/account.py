"""Whose AWS account a command acts on, and in which region, before any cluster is spoken of."""

from dataclasses import dataclass, replace

import boto3
from botocore.exceptions import NoCredentialsError

from config.errors import InputError
from config.target import Target
from provision.aws.clients import aws_errors, client, session


@dataclass(frozen=True)
class Caller:
    """Who AWS says we are."""

    account: str
    arn: str


def caller(target: Target) -> Caller:
    """The owner of the target's credentials; CloudError when there are none, or AWS refuses."""
    with aws_errors():
        who = client(target, "sts").get_caller_identity()
    return Caller(who["Account"], who["Arn"])


OTHER_ACCOUNT = "use that account's: --profile, or AWS_PROFILE"
"""What to do where a cluster is in another account than that of the credentials."""


def check_account(name: str, account: str, ours: str) -> None:
    """Raise InputError where the cluster is in another account than that of the credentials."""
    if account != ours:
        raise InputError(
            f"cluster '{name}' is in AWS account {account}, these credentials are of {ours}",
            OTHER_ACCOUNT,
        )


def resolve_credentials(target: Target) -> Target:
    """The target with its credentials in the open: boto3 and Pulumi's engine then use the same.

    They are found once, by boto3, wherever it looks: environment, profile, SSO, assumed role. They
    are in the target's environment alone, which is never printed, and which the engine inherits.
    A target that has them already stays as it is. Raises CloudError when there are none.
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
    """How boto3 found the credentials: `env`, `sso`, `assume-role`, a file."""
    with aws_errors():
        found = session(target).get_credentials()
    return str(found.method) if found else "none"


def profile_region(profile: str | None) -> str | None:
    """The region of the user's AWS configuration (of `profile`, if given), or None."""
    with aws_errors():
        return boto3.Session(profile_name=profile).region_name
