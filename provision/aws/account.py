"""The AWS account, the credentials and the region of a command."""

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha1
from pathlib import Path

import boto3.session
import botocore.session
from botocore.exceptions import NoCredentialsError

from config.errors import InputError
from config.target import Target
from provision.aws.clients import aws_errors, client, session


@dataclass(frozen=True)
class Caller:
    """The identity to which AWS attributes our requests."""

    account: str
    arn: str


def owner_tag(who: Caller, target: Target) -> str:
    """Return the owner's tag of what gpuctl creates: the setting `owner`, else the caller."""
    # A session's name may have characters that a tag's value may not have (EC2 User Guide, "Tag
    # restrictions").
    return re.sub(r"[^\w .:/=+@-]", "_", target.owner or who.arn)


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


_CONNECTION = {
    "AWS_CA_BUNDLE": "ca_bundle",
    "AWS_USE_DUALSTACK_ENDPOINT": "use_dualstack_endpoint",
    "AWS_USE_FIPS_ENDPOINT": "use_fips_endpoint",
}
"""The variables of AWS's SDKs and their settings in profiles
(https://docs.aws.amazon.com/sdkref/latest/guide/settings-reference.html, 2026-11-26)."""


def resolve_credentials(target: Target) -> Target:
    """Return a target with which the Pulumi engine gets the credentials that boto3 has.

    boto3 finds them: environment, profile, SSO, assumed role. The Pulumi engine asks for them again
    and again, because those of SSO and roles end after an hour or less; boto3 renews them. A target
    that has credentials is returned unchanged. Raises CloudError if there are none.
    """
    if "AWS_ACCESS_KEY_ID" in target.environment or target.credentials is not None:
        return target
    _current(target)
    return replace(target, credentials=partial(_current, target))


def _current(target: Target) -> dict[str, str]:
    """Return the variables of the credentials as they are now, renewed if they are about to end.

    The settings of the profile that concern connections are variables too: the Pulumi engine does
    not read the user's files.
    """
    with aws_errors():
        credentials = session(target).get_credentials()
        # A session of boto3 does not show its profile's settings.
        files = botocore.session.Session(profile=target.environment.get("AWS_PROFILE"))
        if credentials is None:
            raise NoCredentialsError
        keys = credentials.get_frozen_credentials()
    variables = {
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        "AWS_SESSION_TOKEN": keys.token,
        **{name: files.get_config_variable(setting) for name, setting in _CONNECTION.items()},
    }
    return {name: str(value) for name, value in variables.items() if value}


def credentials_end(target: Target) -> datetime | None:
    """Return when the credentials end unless the user renews them; None if that is not known.

    It is known of AWS_CREDENTIAL_EXPIRATION, which `aws configure export-credentials` prints, and
    of a sign-in with `aws sso login` that has no refresh token. boto3 renews all others.
    """
    if "AWS_ACCESS_KEY_ID" in target.environment:
        return None
    with aws_errors():
        opened = session(target)
        credentials = opened.get_credentials()
    method = credentials.method if credentials else "none"
    with suppress(OSError, ValueError, KeyError):  # no such end, or not as a time
        if method == "env":
            return datetime.fromisoformat(os.environ["AWS_CREDENTIAL_EXPIRATION"])
        if method == "sso":
            return _sign_in_end(opened.profile_name)
    return None


SIGN_INS = Path("~/.aws/sso/cache")
"""The folder in which the AWS CLI keeps the tokens of `aws sso login`, each in a file that is named
by the SHA-1 of the session's name, or of the start URL for a profile without a session (botocore
1.44.5, SSOTokenLoader, 2026-11-26)."""


def _sign_in_end(profile: str) -> datetime | None:
    """Return the end of the profile's sign-in; boto3 uses the token, and does not report its end.

    None if the token is renewed without the user. May raise OSError, ValueError or KeyError.
    """
    # boto3's session has no public name for the fields of a profile.
    fields = botocore.session.Session(profile=profile).get_scoped_config()
    name = fields.get("sso_session") or fields["sso_start_url"]
    file = f"{sha1(name.encode(), usedforsecurity=False).hexdigest()}.json"
    token = json.loads((SIGN_INS.expanduser() / file).read_text())
    return None if "refreshToken" in token else datetime.fromisoformat(token["expiresAt"])


UP_TAKES = timedelta(minutes=45)
"""The longest `up` without a wait for capacity: 10 minutes until a claim is active, the network and
the launch, 20 minutes of boot and set-up of the largest types."""


def expiry_warning(target: Target, wait: timedelta) -> str:
    """Return a warning if the credentials end before `up` may; empty if they last, or nobody knows.

    `wait` is the longest wait for capacity.
    """
    end = credentials_end(target)
    needed = datetime.now(UTC) + UP_TAKES + wait
    if end is None or end >= needed:
        return ""
    return (
        f"the AWS credentials end at {end.astimezone(UTC):%Y-%m-%d %H:%M} UTC, and `up` may need"
        f" them until {needed:%H:%M}: renew them first (`aws sso login`)"
    )


def credentials_source(target: Target) -> str:
    """Return where boto3 found the credentials: `env`, `sso`, `assume-role`, a file."""
    with aws_errors():
        credentials = session(target).get_credentials()
    return credentials.method if credentials else "none"


def profile_region(profile: str | None) -> str | None:
    """Return the region of the user's AWS configuration (of `profile`, if given), or None."""
    with aws_errors():
        return boto3.session.Session(profile_name=profile).region_name
