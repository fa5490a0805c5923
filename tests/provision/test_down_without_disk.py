"""`gpuctl down` on a disk that takes no records: nothing that bills is left."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

import provision.down
from cli.main import app
from config.cluster.hosts_file import HostsCluster
from config.errors import InputError, StateError
from config.files import storage_problem
from config.progress import silent
from config.target import Target
from engine.record.history import History
from infra.stack.plugins import ForeignProvider
from provision.aws.clients import client, forget_clients
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.aws.resources import find_all
from provision.billing.ledger import cluster_costs
from provision.down import down
from provision.hosts.down import down as hosts_down
from provision.removal.sweep import sweep
from provision.state.record import new_hosts_record
from provision.state.store import ClusterStore
from tests.engine.conftest import make_plan
from tests.infra.region import CREDENTIALS
from tests.provision.test_record import a_record
from tests.provision.test_sweep import make_cluster
from tests.small_disks import fill, small_disk

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk: root"),
]

FULL = "cannot be written: No space left on device; what exists was found by its tags"
READ_ONLY = "cannot be written: Read-only file system; what exists was found by its tags"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "4m") as place:
        yield place


@pytest.fixture
def target(empty_region: Target, disk: Path) -> Target:
    """A region with a cluster; its record is on the small disk."""
    made = replace(empty_region, state=disk / "aws")
    make_cluster(
        client(empty_region, "ec2"), image_id(client(empty_region, "ssm"), BASTION_IMAGE), "demo"
    )
    ClusterStore(made).write(a_record().now("ready"))
    return made


def stop_writes(disk: Path) -> None:
    """Mount the disk read-only."""
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


def test_a_read_only_disk_refuses_every_other_change(target: Target, disk: Path) -> None:
    stop_writes(disk)
    lock = ClusterStore(target).folder("demo") / "lock"
    with pytest.raises(StateError) as refused, ClusterStore(target).lock("demo", "gpuctl up"):
        pass
    assert str(refused.value) == (
        f"{lock} cannot be written: Read-only file system; mount that file system writable"
    )


def test_a_full_disk_keeps_no_resource_and_no_record(target: Target, disk: Path) -> None:
    fill(disk, 0)
    gone = down("demo", target, silent)
    assert find_all(target, "demo") == []
    assert len(gone.removed) > 10
    assert ClusterStore(target).record("demo") is None
    assert not ClusterStore(target).folder("demo").exists()
    assert gone.warnings == (f"{target.state} {FULL}",)
    (cost,), _ = cluster_costs(target)
    assert (cost.name, cost.cost_usd) == ("demo", gone.cost_usd)


def test_a_read_only_disk_keeps_no_resource_and_what_stays_there_is_said(
    target: Target, disk: Path
) -> None:
    stop_writes(disk)
    gone = down("demo", target, silent)
    assert find_all(target, "demo") == []
    folder = ClusterStore(target).folder("demo")
    assert gone.warnings[0] == f"{target.state} {READ_ONLY}"
    assert (
        f"{folder} cannot be removed: Read-only file system; remove it by hand: it contains a"
        " private key"
    ) in gone.warnings


def test_without_a_record_the_cluster_is_found_by_its_tags(target: Target, disk: Path) -> None:
    ClusterStore(target).forget("demo")
    fill(disk, 0)
    down("demo", target, silent)
    assert find_all(target, "demo") == []
    with pytest.raises(InputError, match=r"^there is no cluster 'demo'"):
        down("demo", target, silent)


def test_a_state_folder_that_is_a_file_keeps_no_resource(target: Target, disk: Path) -> None:
    place = disk / "file"
    place.write_text("")
    gone = down("demo", replace(target, state=place), silent)
    assert find_all(target, "demo") == []
    assert gone.warnings[0] == (
        f"{place} cannot be written: File exists; what exists was found by its tags"
    )


def test_a_missing_engine_keeps_no_resource(target: Target, without_engine: None) -> None:
    gone = down("demo", target, silent)
    assert find_all(target, "demo") == []
    (warning,) = gone.warnings
    assert warning.startswith("Pulumi's engine is not installed (PATH has no `pulumi`, and ")
    assert warning.endswith("; what exists was found by its tags")


def test_a_disk_that_is_full_still_excludes_two_commands(target: Target, disk: Path) -> None:
    with ClusterStore(target).lock("demo", "gpuctl up"):
        fill(disk, 0)
        with pytest.raises(InputError) as refused:
            down("demo", target, silent)
    assert str(refused.value).startswith("cluster 'demo' is being changed by `gpuctl up` (process")
    assert find_all(target, "demo") != []


def test_the_command_says_what_it_could_not_record(
    target: Target, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": str(target.endpoint)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(disk))
    forget_clients()
    mine = replace(target, state=disk / "gpuctl" / "aws")
    ClusterStore(mine).write(a_record().now("ready"))
    with History(mine.runs) as history:
        history.begin(make_plan(nodes=1))
    fill(disk, 0)
    done = CliRunner().invoke(app, ["down", "demo", "--yes", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["warnings"][0] == f"{mine.state} {FULL}"
    for warning in told["warnings"]:
        assert warning in done.stderr
    assert find_all(target, "demo") == []


def test_a_folder_that_can_be_written_has_no_problem(tmp_path: Path) -> None:
    assert storage_problem(tmp_path / "new" / "folder") == ""
    assert list((tmp_path / "new" / "folder").iterdir()) == []


class ForeignState:
    """A stack whose state somebody else has changed."""

    removed: ClassVar[list[str]] = []

    def __init__(self, *_: object) -> None:
        pass

    def exists(self) -> bool:
        raise ForeignProvider("Pulumi's state of demo is not gpuctl's", "")

    def destroy(self, _: object) -> None:
        self.exists()

    def remove(self) -> None:
        self.removed.append("state")


@pytest.mark.parametrize("is_left", [True, False])
def test_a_state_that_is_not_gpuctls_is_removed_with_the_cluster(
    target: Target, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    if not is_left:
        sweep(target, "demo", "", silent)
        ClusterStore(target).forget("demo")
    monkeypatch.setattr(provision.down, "find_engine", lambda _: None)
    monkeypatch.setattr(provision.down, "Stack", ForeignState)
    ForeignState.removed.clear()
    down("demo", target, silent)
    assert find_all(target, "demo") == []
    assert ForeignState.removed


@pytest.mark.parametrize("stop", [lambda disk: fill(disk, 0), stop_writes])
def test_what_was_written_on_machines_is_removed_without_a_disk(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: Callable[[Path], None]
) -> None:
    store = ClusterStore(Target("hosts", "", disk / "hosts"))
    file = HostsCluster.model_validate_json('{"name": "lab7", "hosts": [{"address": "gpu9"}]}')
    record = new_hosts_record(file, "c0ffee", datetime.now(UTC)).now("ready")
    store.write_hosts(record)
    ssh = tmp_path / "ssh"  # the machine has removed everything
    ssh.write_text(f"#!/bin/sh\ncat > /dev/null; touch {tmp_path}/asked; echo gpuctl: removed\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    stop(disk)
    with suppress(StateError):  # a read-only disk keeps the record: another `down` removes it
        hosts_down(record, store, silent)
    assert (tmp_path / "asked").exists()
