"""Sessions of roles: the credentials that AssumeRole gives, and the role that they are of."""

from collections.abc import Mapping
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from lab.access_key import AccessKey


def session_of(environ: Mapping[str, Any]) -> Any:
    """Return moto's session whose key signed the request; None for another key."""
    header = str(environ.get("HTTP_AUTHORIZATION", ""))
    key_id = header.partition("Credential=")[2].partition("/")[0]
    return sts_backends[DEFAULT_ACCOUNT_ID]["aws"].get_assumed_role_from_access_key(key_id)


def key_of(session: Any) -> AccessKey:
    """Return the key with which the session's requests are signed."""
    return AccessKey(session.access_key_id, session.secret_access_key)


def role_of(session: Any) -> Any:
    """Return moto's role of the session; None if it was removed."""
    roles = iam_backends[DEFAULT_ACCOUNT_ID]["aws"].roles
    return next((role for role in list(roles.values()) if role.arn == session.role_arn), None)
