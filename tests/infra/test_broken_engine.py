"""A `pulumi` that breaks, or that cannot download its provider: one line with what to do."""

from pathlib import Path

import pytest
from pulumi import automation

from config.errors import InfraError
from config.target import Target
from infra.stack.engine_command import EngineCommand
from infra.stack.installation import VERSION as ENGINE_VERSION
from infra.stack.installation import Engine
from infra.stack.plugins import VERSION, install_provider
from infra.stack.stack import Stack
from infra.stack.workspace import workspace_options

GOES_ON = (
    "gpuctl keeps a record of what exists: run the same command again to continue, or"
    " `gpuctl down demo` to remove it"
)


def broken(folder: Path, script: str) -> Engine:
    path = folder / "pulumi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Engine(path, ENGINE_VERSION, "setting")


def failure(folder: Path, engine: Engine) -> str:
    with pytest.raises(InfraError) as error:
        Stack("demo", Target("aws", "us-east-1", folder / "state"), engine).exists()
    return str(error.value)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("kill -KILL $$", "Pulumi's engine was killed by SIGKILL, and says nothing"),
        ("exit 3", "Pulumi's engine ended with exit code 3, and says nothing"),
        ("echo cannot allocate memory; exit 1", "cannot allocate memory"),
        (r"printf 'caf\351'; exit 1", "caf\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_an_engine_that_fails_is_one_line(tmp_path: Path, script: str, said: str) -> None:
    assert failure(tmp_path, broken(tmp_path, script)) == f"{said}; {GOES_ON}"


@pytest.mark.parametrize("script", ["true", "echo hello", r"printf '\351'"])
def test_an_engine_that_answers_something_else_is_named(tmp_path: Path, script: str) -> None:
    engine = broken(tmp_path, script)
    assert failure(tmp_path, engine) == (
        "Pulumi's engine answers what gpuctl cannot read: Expecting value: line 1 column 1 (char"
        f" 0); see that {engine.path} is Pulumi's own command, or let gpuctl install it: `gpuctl"
        " doctor`"
    )


def test_an_engine_that_has_gone_is_named(tmp_path: Path) -> None:
    engine = broken(tmp_path, "true")
    engine.path.unlink()
    assert failure(tmp_path, engine) == (
        f"Pulumi's engine failed: [Errno 2] No such file or directory: '{engine.path}'; {GOES_ON}"
    )


def test_a_provider_that_cannot_be_downloaded_names_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    target = Target("aws", "us-east-1", tmp_path / "state")
    engine = broken(
        tmp_path, "echo 'error: [resource plugin aws] all 5 attempts failed' >&2; exit 1"
    )
    options = workspace_options("demo", target, EngineCommand(engine))
    workspace = automation.LocalWorkspace(
        work_dir=options.work_dir,
        pulumi_home=options.pulumi_home,
        env_vars=options.env_vars,
        pulumi_command=options.pulumi_command,
    )
    with pytest.raises(InfraError) as error:
        install_provider(workspace, target)
    assert str(error.value) == (
        "Pulumi's provider for AWS cannot be installed: [resource plugin aws] all 5 attempts"
        " failed; allow HTTPS to get.pulumi.com for one download, or install an archive of"
        f" https://github.com/pulumi/pulumi-aws/releases/tag/v{VERSION}:"
        f" `PULUMI_HOME='{tmp_path}/my cache/gpuctl/pulumi' {engine.path} plugin install"
        f" resource aws v{VERSION} --file ARCHIVE`"
    )
