"""The place where the API is: the only value that differs between AWS and a rehearsal."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.bucket import Bucket, bucket_of

NO_AWS_FILES: dict[str, tuple[Any, Any, Any, Any]] = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
"""The `session_vars` of a botocore session that reads neither AWS_PROFILE nor the user's AWS files:
the name in the file, the environment variables, the default, the conversion."""


@dataclass(frozen=True)
class Target:
    """An AWS region to act on, the same for boto3 and for Pulumi.

    `environment` holds credentials and AWS settings (AWS_ACCESS_KEY_ID, AWS_PROFILE, …) that
    override the process environment for boto3 and the Pulumi engine; it is never printed.
    `credentials` returns the variables of credentials that are valid now, whenever the Pulumi
    engine or its provider asks; None if `environment` has the credentials, or nobody has looked for
    them yet.
    `provider_address` is `host:port` of a Pulumi provider for `aws` that is already running, or
    None for the real plugin. `caller_address` is this client's IPv4 address as the nodes see it, or
    None to ask a public service. `vpcs_are_isolated` says that no network outside a VPC, such as a
    VPN, reaches the VPC's private addresses. `state` is the folder for everything that gpuctl
    stores about this target. `session_plugin` is the command that implements Session Manager's
    protocol. `session_proxy` is the command that, followed by an instance's id, becomes a
    connection to the instance's ssh through Session Manager. `owner` is for the tag of new
    clusters, empty for the ARN of the credentials. `check_permissions` says whether a missing
    permission ends a plan.
    """

    name: str
    region: str
    state: Path
    endpoint: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: Callable[[], Mapping[str, str]] | None = field(
        default=None, repr=False, compare=False
    )
    provider_address: str | None = None
    caller_address: str | None = None
    vpcs_are_isolated: bool = False
    session_plugin: tuple[str, ...] = ("session-manager-plugin",)
    session_proxy: tuple[str, ...] = ()
    backend: str | None = None
    owner: str = ""
    check_permissions: bool = True

    @property
    def clusters(self) -> Path:
        """The folder with one folder per cluster."""
        return self.state / "clusters"

    @property
    def runs(self) -> Path:
        """The folder with run history: `runs.sqlite` and one folder per run."""
        return self.state / "runs"

    @property
    def bucket(self) -> Bucket | None:
        """The bucket in which a team shares clusters; None if they are this machine's alone."""
        return bucket_of(self.backend)

    @property
    def backend_url(self) -> str:
        """Pulumi's backend URL: the configured one, or a folder of `state`."""
        return self.backend or (self.state / "pulumi").absolute().as_uri()
