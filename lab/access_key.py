"""The access key of a lab's API: each start makes a new one, and only root can read it."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from config.errors import LabError

ADMINISTRATOR = "administrator"
"""The session token of requests that the policy of a lab's credentials does not concern."""

_ID, _SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"


@dataclass(frozen=True)
class AccessKey:
    """A key's id, which travels with each request, and its secret, which signs them."""

    key_id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> "AccessKey":
        """Return a random key of the form that AWS's keys have."""
        # 16 of AWS's 20 characters may be any of these (base 32); "LAB" is no prefix of AWS.
        random = "".join(secrets.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") for _ in range(16))
        return cls(f"LAB{random}", secrets.token_urlsafe(30))

    @classmethod
    def from_environment(cls) -> "AccessKey":
        """Return the key of this process's environment; raise LabError if it has none."""
        try:
            return cls(os.environ[_ID], os.environ[_SECRET])
        except KeyError as missing:
            raise LabError(
                f"{missing.args[0]} is not set",
                f"set {_ID} and {_SECRET} to what clients of this API sign with",
            ) from None

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables with which boto3 uses this key and looks for no other one."""
        # Otherwise boto3 may ask a metadata service, at an address that may be a real cloud's.
        return {_ID: self.key_id, _SECRET: self.secret, "AWS_EC2_METADATA_DISABLED": "true"}
