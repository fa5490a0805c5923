"""Records and locks on this machine."""

import contextlib
import fcntl
import multiprocessing
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from config.errors import InputError, StateError
from config.target import Target
from infra.program.interface_layout import interfaces
from nodes.inventory import Bastion, Inventory, Node, save
from provision.state import record
from provision.state.store import ClusterStore
from tests.infra.region import instance_type

pytestmark = pytest.mark.slow

CASES = Path(__file__).parent / "cases"
CREATED = datetime(2026, 11, 20, 12, tzinfo=UTC)


def target(tmp_path: Path) -> Target:
    return Target("test", "us-east-1", tmp_path)


def a_record(name: str = "demo") -> record.ClusterRecord:
    from config.cluster.cluster_file import Cluster
    from config.cluster.resolved import Image, Resolved

    kind = instance_type("p4d.24xlarge")
    image = Image(id="ami-1", name="DL", root_device="/dev/sda1", architecture="x86_64")
    resolved = Resolved(
        cluster=Cluster.model_validate(
            {
                "name": name,
                "nodes": 2,
                "instance_type": "p4d.24xlarge",
                "lifetime": {"max": "8h"},
                "capacity": {"zones": ("us-east-1a",)},
            }
        ),
        account="123456789012",
        region="us-east-1",
        zone="us-east-1a",
        instance_type=kind.model_copy(update={"price_usd_h": 21.957642}),
        interfaces=interfaces(kind, "auto"),
        image=image,
        bastion_type="t3.small",
        bastion_image=image,
        bastion_price_usd_h=0.0208,
        nat_price_usd_h=0.045,
        ssh_from="198.18.255.1/32",
        public_key="ssh-ed25519 AAAA",
        nodes_public_key="ssh-ed25519 BBBB",
        user_data="#cloud-config\n",
        bastion_user_data="#cloud-config\n",
        tags={"gpuctl:cluster": name},
    )
    return record.new_record(resolved, CREATED)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = a_record().now("failed", "node1 is gone")
    ClusterStore(target(tmp_path)).write(written)
    assert ClusterStore(target(tmp_path)).record("demo") == written
    assert ClusterStore(target(tmp_path)).records() == (written,)
    assert [p.name for p in (tmp_path / "clusters/demo").iterdir()] == ["cluster.json"]
    ClusterStore(target(tmp_path)).forget("demo")
    assert ClusterStore(target(tmp_path)).record("demo") is None


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    ClusterStore(target(tmp_path)).write(a_record())
    path = tmp_path / "clusters/demo/cluster.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(InputError, match=f"^the record {path} cannot be read: "):
        ClusterStore(target(tmp_path)).record("demo")


def test_an_unknown_cluster_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        ClusterStore(target(tmp_path)).inventory("demo")
    assert str(caught.value) == ("there is no cluster 'demo'; `gpuctl up FILE` creates one")
    ClusterStore(target(tmp_path)).write(a_record("other"))
    with pytest.raises(InputError) as caught:
        ClusterStore(target(tmp_path)).inventory("demo")
    assert str(caught.value) == "there is no cluster 'demo'; there are: other"


def test_an_inventory_is_there_once_the_cluster_is_ready(tmp_path: Path) -> None:
    ClusterStore(target(tmp_path)).write(a_record())
    with pytest.raises(InputError, match=r"^cluster 'demo' is not ready: its record says creating"):
        ClusterStore(target(tmp_path)).inventory("demo")
    folder = ClusterStore(target(tmp_path)).folder("demo")
    inventory = Inventory(
        cluster="demo",
        region="us-east-1",
        zone="us-east-1a",
        instance_type="p4d.24xlarge",
        bastion=Bastion(instance_id="i-b", address="198.18.0.3"),
        nodes=(
            Node(
                rank=0,
                name="node0",
                instance_id="i-1",
                private_ip="10.0.0.4",
                gpus=8,
                slots=8,
            ),
        ),
        folder=folder,
    )
    save(inventory, folder / "inventory.json")
    assert ClusterStore(target(tmp_path)).inventory("demo") == inventory


def _hold(state: Path, held: Event) -> None:
    with ClusterStore(Target("test", "us-east-1", state)).lock("demo", "gpuctl up"):
        held.set()
        signal.pause()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[SpawnProcess]:
    """Another process that changes the cluster; it ends with the test, however that ends."""
    spawn = multiprocessing.get_context("spawn")
    held = spawn.Event()
    process = spawn.Process(target=_hold, args=(tmp_path, held), daemon=True)
    process.start()
    try:
        assert held.wait(60)
        yield process
    finally:
        process.kill()
        process.join(60)


def test_a_second_command_is_told_who_changes_the_cluster(
    tmp_path: Path, holder: SpawnProcess
) -> None:
    assert ClusterStore(target(tmp_path)).is_locked("demo")
    with (
        pytest.raises(InputError) as caught,
        ClusterStore(target(tmp_path)).lock("demo", "gpuctl down"),
    ):
        pass
    assert caught.value.message == (
        f"cluster 'demo' is being changed by `gpuctl up` (process {holder.pid})"
    )
    holder.kill()
    holder.join(60)
    assert not ClusterStore(target(tmp_path)).is_locked("demo")
    with ClusterStore(target(tmp_path)).lock("demo", "gpuctl down"):
        assert ClusterStore(target(tmp_path)).is_locked("demo")


def test_a_question_for_the_lock_refuses_no_command(tmp_path: Path) -> None:
    store = ClusterStore(target(tmp_path))
    with store.lock("demo", "gpuctl up"):
        pass
    with (store.folder("demo") / "lock").open() as question:
        fcntl.flock(question, fcntl.LOCK_SH)  # as `gpuctl status` has it for a moment
        answered = threading.Timer(0.1, fcntl.flock, (question, fcntl.LOCK_UN))
        answered.start()
        with store.lock("demo", "gpuctl down"):
            assert store.is_locked("demo")
        answered.join()


def test_a_record_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    here = target(tmp_path)
    for name in ("demo", "other"):
        ClusterStore(here).write(a_record(name))
    broken = ClusterStore(here).folder("demo") / "cluster.json"
    broken.write_text(broken.read_text()[:100])
    assert [known.name for known in ClusterStore(here).records()] == ["other"]
    (complaint,) = ClusterStore(here).errors()
    assert str(complaint).startswith(f"the record {broken} cannot be read: ")
    assert (
        complaint.hint
        == "move it away; `gpuctl down demo` then finds the cluster by its tags and removes it"
    )


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "full"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.lab
def test_a_full_disk_keeps_the_record_that_was_there(full: Path) -> None:
    here = target(full)
    ClusterStore(here).write(a_record())
    with (full / "others").open("ab", buffering=0) as others, contextlib.suppress(OSError):
        while others.write(b"x" * 4096):
            pass
    with pytest.raises(StateError) as refused:
        ClusterStore(here).write(a_record().now("ready"))
    path = ClusterStore(here).folder("demo") / "cluster.json"
    assert str(refused.value) == (
        f"{path} cannot be written: No space left on device;"
        " make room on that disk; `gpuctl status` shows what exists and bills"
    )
    assert ClusterStore(here).record("demo") == a_record()
    assert [one.name for one in path.parent.iterdir()] == ["cluster.json"]


def test_what_is_kept_is_its_owners_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        here = target(tmp_path / "state")
        ClusterStore(here).write(a_record())
    finally:
        os.umask(old)
    path = ClusterStore(here).folder("demo") / "cluster.json"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_disk_that_cannot_lock_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("config.file_locks.fcntl.flock", refuse)
    here = target(tmp_path)
    with pytest.raises(StateError) as refused, ClusterStore(here).lock("demo", "gpuctl up"):
        pass
    assert str(refused.value) == (
        f"{tmp_path}/clusters/demo/lock cannot be locked: No locks available;"
        " keep gpuctl's state on a disk of this machine: set XDG_STATE_HOME"
    )


def test_keys_that_cannot_be_removed_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = target(tmp_path)
    ClusterStore(here).write(a_record())
    place = ClusterStore(here).folder("demo")
    (place / "id_ed25519").touch()

    def refuse(path: object, *_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("os.unlink", refuse)
    with pytest.raises(StateError) as told:
        ClusterStore(here).forget("demo")
    monkeypatch.undo()
    assert str(told.value) == (
        f"{place} cannot be removed: Read-only file system;"
        " remove it by hand: it contains a private key"
    )
    ClusterStore(here).forget("demo")
    assert not place.exists()
    ClusterStore(here).forget("demo")
