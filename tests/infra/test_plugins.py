"""Pulumi's engine starts gpuctl's provider alone, whatever a state names."""

from pathlib import Path
from typing import Any

import pytest
from pulumi.automation import Deployment

from config.folders import cache_home
from config.target import Target
from infra.stack.engine_command import EngineCommand
from infra.stack.engine_events import DamagedState
from infra.stack.installation import Engine
from infra.stack.plugins import VERSION, ForeignProvider, check_state, install_provider
from infra.stack.workspace import workspace_options

PREFIX = "urn:pulumi:demo::gpuctl::pulumi:providers:"


def provider(package: str = "aws", **inputs: Any) -> dict[str, Any]:
    return {
        "urn": f"{PREFIX}{package}::{package}",
        "type": f"pulumi:providers:{package}",
        "inputs": {"region": "us-east-1", "version": VERSION, **inputs},
    }


def resource(package: str = "aws") -> dict[str, Any]:
    return {
        "urn": "urn:pulumi:demo::gpuctl::aws:ec2/vpc:Vpc::vpc",
        "type": "aws:ec2/vpc:Vpc",
        "provider": f"{PREFIX}{package}::{package}::0b-1c",
    }


def exported(*resources: Any, **more: Any) -> Deployment:
    return Deployment(version=3, deployment={"resources": list(resources), **more})


def test_the_state_of_gpuctls_program_is_accepted() -> None:
    stack = {
        "urn": "urn:pulumi:demo::gpuctl::pulumi:pulumi:Stack::s",
        "type": "pulumi:pulumi:Stack",
    }
    inputs: dict[str, Any] = {
        "allowedAccountIds": "[]",
        "ignoreTags": "{}",
        "maxRetries": "3",
        "__internal": {},
    }
    check_state("demo", exported(stack, provider(**inputs), resource()))
    check_state("demo", exported())
    check_state("demo", Deployment(version=None, deployment=None))


EVIL = "https://example.org/plugins"
FOREIGN: list[tuple[Any, str]] = [
    (provider("aws2"), "it names the provider aws2"),
    (provider("pulumi-nodejs"), "it names the provider pulumi-nodejs"),
    (resource("aws-native"), "it names the provider aws-native"),
    (provider(version="7.51.0"), f"it names version 7.51.0 of the provider, gpuctl has {VERSION}"),
    (
        {"type": "pulumi:providers:aws", "inputs": {}},
        f"it names version None of the provider, gpuctl has {VERSION}",
    ),
    (provider(__internal={"pluginDownloadURL": EVIL}), "a provider has pluginDownloadURL"),
    (provider(__internal={"name": "evil"}), "a provider has name"),
    (provider(pluginDownloadURL=EVIL), "a provider has pluginDownloadURL"),
    (provider(pluginChecksums={}), "a provider has pluginChecksums"),
    (provider(sharedConfigFiles='["/tmp/x"]'), "a provider has sharedConfigFiles"),
    (provider(endpoints='[{"sts": "http://x"}]'), "a provider has endpoints"),
    ("text", "it has a resource without fields"),
    ({"type": "pulumi:providers:aws", "inputs": "text"}, "a provider's inputs are no fields"),
]


@pytest.mark.parametrize(("found", "why"), FOREIGN)
@pytest.mark.parametrize("is_pending", [False, True])
def test_a_state_with_another_provider_is_refused(
    found: Any, why: str, *, is_pending: bool
) -> None:
    pending = [{"resource": found, "type": "creating"}]
    state = exported(pending_operations=pending) if is_pending else exported(resource(), found)
    with pytest.raises(ForeignProvider) as refused:
        check_state("demo", state)
    assert str(refused.value) == (
        f"Pulumi's state of demo is not gpuctl's: {why}; somebody may have changed it, so nothing"
        " was started; `gpuctl down demo` finds the cluster by its tags, and removes it and that"
        " state"
    )
    assert isinstance(refused.value, DamagedState)  # `down` goes on by tags


@pytest.mark.parametrize("address", [None, "127.0.0.1:1"])
def test_the_engine_downloads_nothing_by_itself(tmp_path: Path, address: str | None) -> None:
    target = Target("aws", "us-east-1", tmp_path, provider_address=address)
    engine = EngineCommand(Engine(Path("pulumi"), "3.258.0", "path"))
    variables = workspace_options("demo", target, engine).env_vars or {}
    assert variables["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] == "true"


class Installer:
    """The part of a workspace that installs plugins."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def install_plugin(self, name: str, version: str) -> None:
        self.asked.append((name, version))


def test_gpuctl_installs_the_pinned_provider_once_and_not_for_the_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    aws, installer = Target("aws", "us-east-1", tmp_path), Installer()
    lab = Target("lab", "us-east-1", tmp_path, provider_address="127.0.0.1:1")

    def install(target: Target) -> list[tuple[str, str]]:
        installer.asked.clear()
        install_provider(installer, target)  # type: ignore[arg-type]
        return list(installer.asked)

    assert install(lab) == []
    assert install(aws) == [("aws", f"v{VERSION}")]
    place = cache_home() / "pulumi" / "plugins" / f"resource-aws-v{VERSION}"
    place.mkdir(parents=True)
    assert install(aws) == []
    place.with_name(f"{place.name}.partial").touch()  # an install that was killed
    assert install(aws) == [("aws", f"v{VERSION}")]
