"""`gpuctl config`, and what commands make of the settings."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.options import Options, chosen_target
from config.cluster.cluster_file import Cluster, Lifetime
from config.settings import VARIABLES
from operations.chosen_target import ChosenTarget
from operations.lease import with_lifetime
from provision.state.store import ClusterStore
from tests.provision.test_record import a_record

CLUSTER = Cluster.model_validate({"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge"})


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for names in (*VARIABLES.values(), ("GPUCTL_PROFILE", "AWS_ACCESS_KEY_ID")):
        for name in names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "gpuctl").mkdir()
    path = tmp_path / "gpuctl" / "config.yaml"
    path.write_text("region: eu-west-1\nlifetime: 8h\n")
    return path


def test_each_value_and_where_it_comes_from(file: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["config", "--profile", "research"])
    assert (
        done.output
        == ("SETTING            VALUE" + " " * (len(f"{tmp_path}/state/gpuctl") - 3) + "FROM\n")
        + "".join(
            f"{name:<19}{value:<{len(f'{tmp_path}/state/gpuctl')}}  {source}\n"
            for name, value, source in (
                ("aws_profile", "research", "--profile"),
                ("backend", "-", "a folder in `state`"),
                ("check_permissions", "true", "default"),
                ("gc_regions", "-", "all that the account has enabled"),
                ("lifetime", "8h", f"{file}:2"),
                ("owner", "-", "the ARN of your credentials"),
                ("pulumi", "-", "`pulumi` on PATH, or gpuctl's own"),
                ("region", "eu-west-1", f"{file}:1"),
                ("state", f"{tmp_path}/state/gpuctl", "default"),
            )
        )
        + f"File: {file}\n"
    )


def test_as_json(file: Path) -> None:
    found = json.loads(CliRunner().invoke(app, ["config", "--json"]).output)
    assert found["file"] == str(file)
    assert found["settings"]["lifetime"] == {"value": "8h", "from": f"{file}:2"}
    file.unlink()
    found = json.loads(CliRunner().invoke(app, ["config", "--json"]).output)
    assert found["file"] is None
    assert found["settings"]["backend"] == {"value": None, "from": "a folder in `state`"}


def test_a_new_cluster_without_a_lifetime_gets_that_of_the_settings(file: Path) -> None:
    here = ChosenTarget()
    assert with_lifetime(here, CLUSTER).lifetime == Lifetime.model_construct(max=8 * 3600)
    short = CLUSTER.model_copy(update={"lifetime": Lifetime.model_construct(max=60)})
    assert with_lifetime(here, short) == short
    ClusterStore(here.remembered()).write(a_record("demo"))
    file.write_text("lifetime: 2h\n")
    assert with_lifetime(here, CLUSTER).lifetime == a_record("demo").resolved.cluster.lifetime
    file.unlink()
    assert with_lifetime(here, CLUSTER).lifetime == a_record("demo").resolved.cluster.lifetime


def test_settings_reach_the_target(file: Path) -> None:
    file.write_text("region: eu-west-1\naws_profile: lab\nowner: me\ncheck_permissions: false\n")

    def chosen(**flags: Any) -> ChosenTarget:
        root = SimpleNamespace(ensure_object=lambda _: Options(**flags))
        context: Any = SimpleNamespace(find_root=lambda: root)
        return chosen_target(context)

    target = chosen().target()
    assert (target.region, target.owner, target.check_permissions) == ("eu-west-1", "me", False)
    assert target.environment == {"AWS_PROFILE": "lab"}
    assert chosen().target("us-west-2").region == "us-west-2", "the cluster file's"
    assert chosen(region="us-east-2").target("us-west-2").region == "us-east-2"
    assert chosen(profile="other").target().environment == {"AWS_PROFILE": "other"}
