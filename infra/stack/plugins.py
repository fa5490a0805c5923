"""The plugins that Pulumi's engine may start: gpuctl's pinned provider of AWS, and no other.

A state names the providers of its resources, each with a version and a URL to download it from
(`__internal.pluginDownloadURL`), and the engine would fetch and start them
(`loadProvider` and `GetProviderDownloadURL` in pkg/resource/deploy/providers/registry.go,
pulumi 3.258.0, 2026-11-26). A team's state is in a bucket that others write. So the engine
downloads nothing by itself (PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION), gpuctl installs the one
plugin, and a state with another provider is refused before the engine starts one.
"""

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from pulumi import automation
from pulumi.automation import CommandError

from config.command_text import command_text
from config.errors import InfraError
from config.folders import cache_home
from config.target import Target
from infra.stack.engine_events import DamagedState, complaint

VERSION = version("pulumi-aws")
"""The version of the plugin: that of the package with which the program is written."""

NO_DOWNLOADS = {"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true"}
"""The variable with which the engine downloads no plugin, except by `pulumi plugin install`."""

_PROVIDERS = "pulumi:providers:"
_INPUTS = frozenset(
    {
        "allowedAccountIds",
        "ignoreTags",
        "maxRetries",
        "region",
        "version",
        "__internal",
        "skipCredentialsValidation",
        "skipMetadataApiCheck",
        "skipRegionValidation",
    }
)
"""The inputs that gpuctl's program sets. Others could name a file with a command to run
(`sharedConfigFiles`), or a host that gets signed requests (`endpoints`)."""


class ForeignProvider(DamagedState):
    """The error that a state names a provider that is not gpuctl's: somebody has changed it."""


def install_provider(workspace: automation.Workspace, target: Target) -> None:
    """Install the pinned provider of AWS unless it is installed; the lab has its own.

    Raises InfraError if it cannot be downloaded.
    """
    home = cache_home() / "pulumi"
    place = home / "plugins" / f"resource-aws-v{VERSION}"
    is_partial = place.with_name(f"{place.name}.partial").exists()
    if target.provider_address is None and (is_partial or not place.is_dir()):
        try:
            workspace.install_plugin("aws", f"v{VERSION}")
        except CommandError as failed:
            by_hand = command_text(
                "PULUMI_HOME={} {} plugin install resource aws {} --file ARCHIVE",
                home,
                workspace.pulumi_command.command,
                f"v{VERSION}",
            )
            raise InfraError(
                f"Pulumi's provider for AWS cannot be installed: {complaint(str(failed))}",
                "allow HTTPS to get.pulumi.com for one download, or install an archive of"
                f" https://github.com/pulumi/pulumi-aws/releases/tag/v{VERSION}: {by_hand}",
            ) from None


def check_state(name: str, state: automation.Deployment) -> None:
    """Raise ForeignProvider if the stack's state has a provider that is not gpuctl's."""
    for problem in _problems(state.deployment or {}):
        raise ForeignProvider(
            f"Pulumi's state of {name} is not gpuctl's: {problem}",
            "somebody may have changed it, so nothing was started;"
            f" {command_text('gpuctl down {}', name)}"
            " finds the cluster by its tags, and removes it and that state",
        )


def _problems(deployment: Mapping[str, Any]) -> Iterator[str]:
    """Yield what in the state is none of gpuctl's providers."""
    pending = (
        operation.get("resource") for operation in deployment.get("pending_operations") or ()
    )
    for resource in (*(deployment.get("resources") or ()), *pending):
        if not isinstance(resource, Mapping):
            yield "it has a resource without fields"
            continue
        kind, provider = str(resource.get("type")), str(resource.get("provider") or "")
        named = kind if kind.startswith(_PROVIDERS) else provider.partition("::pulumi:")[2]
        package = named.removeprefix(_PROVIDERS).removeprefix("providers:").partition("::")[0]
        if named and package != "aws":
            yield f"it names the provider {package}"
        if kind.startswith(_PROVIDERS):
            yield from _wrong_inputs(resource.get("inputs") or {})


def _wrong_inputs(inputs: Any) -> Iterator[str]:
    """Yield what the inputs of a provider have that gpuctl never sets."""
    if not isinstance(inputs, Mapping):
        yield "a provider's inputs are no fields"
        return
    if inputs.get("version") != VERSION:
        yield f"it names version {inputs.get('version')} of the provider, gpuctl has {VERSION}"
    if inputs.get("__internal"):
        yield f"a provider has {', '.join(sorted(map(str, inputs['__internal'])))}"
    if others := sorted(map(str, inputs.keys() - _INPUTS)):
        yield f"a provider has {', '.join(others)}"
