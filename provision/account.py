"""Whose AWS account a command acts on, and in which region, before any cluster is spoken of."""

from dataclasses import dataclass

import boto3

from config.target import Target
from provision.aws import aws_errors, client


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


def profile_region(profile: str | None) -> str | None:
    """The region of the user's AWS configuration (of `profile`, if given), or None."""
    with aws_errors():
        return boto3.Session(profile_name=profile).region_name
