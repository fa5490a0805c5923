"""The AWS account, the credentials and the region of a command."""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import botocore.session
from botocore.exceptions import NoCredentialsError
from botocore.utils import JSONFileCache, SSOTokenLoader, parse_timestamp

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


def resolve_credentials(target: Target) -> Target:
    """Return a target with which the Pulumi engine gets the credentials that botocore has.

    botocore finds them: environment, profile, SSO, assumed role. Each start of the Pulumi engine
    gets them as they are then, because those of SSO and roles end after an hour; botocore's own
    clients renew them. A target that has credentials is returned unchanged. Raises CloudError if
    there are none.
    """
    if "AWS_ACCESS_KEY_ID" in target.environment or target.credentials is not None:
        return target
    _current(target)
    return replace(target, credentials=partial(_current, target))


def _current(target: Target) -> dict[str, str]:
    """Return the variables of the credentials as they are now, renewed if they are about to end."""
    with aws_errors():
        found = session(target).get_credentials()
        if found is None:
            raise NoCredentialsError
        keys = found.get_frozen_credentials()
    variables = {
        "AWS_ACCESS_KEY_ID": str(keys.access_key),
        "AWS_SECRET_ACCESS_KEY": str(keys.secret_key),
    }
    if keys.token:
        variables["AWS_SESSION_TOKEN"] = str(keys.token)
    return variables


def credentials_end(target: Target) -> datetime | None:
    """Return when the credentials end unless the user renews them; None if that is not known.

    It is known of AWS_CREDENTIAL_EXPIRATION, which `aws configure export-credentials` prints, and
    of a sign-in with `aws sso login` that has no refresh token. Roles and credential processes are
    asked again by botocore.
    """
    with aws_errors():
        opened = session(target)
        found = opened.get_credentials()
    if found is None or "AWS_ACCESS_KEY_ID" in target.environment:
        return None
    if found.method == "env":
        end = getattr(found, "_expiry_time", None)
        return end if isinstance(end, datetime) else None
    return _sign_in_end(opened) if found.method == "sso" else None


SIGN_INS = Path("~/.aws/sso/cache")
"""The folder in which the AWS CLI keeps the tokens of `aws sso login`, as botocore knows it."""


def _sign_in_end(opened: botocore.session.Session) -> datetime | None:
    """Return the end of the sign-in of the session's profile, from the AWS CLI's cache."""
    profile = opened.get_scoped_config()
    name = profile.get("sso_session")
    known = opened.full_config.get("sso_sessions", {}).get(name, profile)
    cache = JSONFileCache(str(SIGN_INS.expanduser()))
    with aws_errors():
        token = SSOTokenLoader(cache=cache)(known["sso_start_url"], session_name=name)
    return None if "refreshToken" in token else parse_timestamp(token["expiresAt"])


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
    """Return where botocore found the credentials: `env`, `sso`, `assume-role`, a file."""
    with aws_errors():
        found = session(target).get_credentials()
    return str(found.method) if found else "none"


def profile_region(profile: str | None) -> str | None:
    """Return the region of the user's AWS configuration (of `profile`, if given), or None."""
    with aws_errors():
        found = botocore.session.Session(profile=profile).get_config_variable("region")
    return None if found is None else str(found)
