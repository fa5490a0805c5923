"""Where the API is: the one value in which AWS and a rehearsal differ."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """An AWS region to act on, the same for boto3 and for Pulumi.

    `environment` holds credentials and AWS settings (AWS_ACCESS_KEY_ID, AWS_PROFILE, …) that are
    laid over the process environment for boto3 and the engine; it is never printed.
    `provider_address` is `host:port` of a Pulumi provider for `aws` that is already running, or
    None for the real plugin. `caller_address` is the IPv4 address that nodes see this client
    come from, or None to ask a public service. `state` is the folder for everything that
    gpuctl remembers about this target.
    `session_plugin` is the command that speaks for Session Manager. `session_proxy` is the command
    that, with an instance's id behind it, becomes a connection to the instance's ssh through it.
    """

    name: str
    region: str
    state: Path
    endpoint: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    provider_address: str | None = None
    caller_address: str | None = None
    session_plugin: tuple[str, ...] = ("session-manager-plugin",)
    session_proxy: tuple[str, ...] = ()
    backend: str | None = None

    @property
    def clusters(self) -> Path:
        """The folder with one folder per cluster."""
        return self.state / "clusters"

    @property
    def runs(self) -> Path:
        """The folder with run history: `runs.sqlite` and one folder per run."""
        return self.state / "runs"

    @property
    def backend_url(self) -> str:
        """Pulumi's backend: the one asked for, or a folder of `state`."""
        return self.backend or f"file://{self.state / 'pulumi'}"
