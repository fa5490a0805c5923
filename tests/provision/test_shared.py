"""What a team shares: objects, records, inventories and locks in a bucket of the lab's S3."""

import json
import multiprocessing
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from config.bucket import Changed
from config.errors import CloudError, InputError, StateError
from config.target import Target
from lab import fault_table
from lab.buckets import make_bucket
from nodes.inventory import Inventory
from provision.aws.objects import Objects
from provision.permissions.policy import policy
from provision.state import cluster_lock, shared
from provision.state.record import ClusterRecord, Lease
from provision.state.shared import SharedFiles
from provision.state.store import ClusterStore
from tests.engine.conftest import make_inventory
from tests.labs import KEY
from tests.provision.test_record import a_record

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(asked_only: str, tmp_path: Path) -> str:
    """The URL of a bucket of the test's own, with versions."""
    name = f"team-{tmp_path.name.replace('_', '-')[:50].lower().strip('-')}"
    make_bucket(name, asked_only, KEY)
    return f"s3://{name}/gpus"


def member(name: str, bucket: str, target: Target) -> Target:
    """The target of one of the team, whose machine has a state folder of its own."""
    return replace(target, state=target.state / name, backend=bucket, owner=name)


@pytest.fixture
def anna(bucket: str, target: Target) -> Target:
    return member("anna", bucket, target)


@pytest.fixture
def ben(bucket: str, target: Target) -> Target:
    return member("ben", bucket, target)


def change(target: Target, record: ClusterRecord) -> None:
    """Write the record as a command does, which has read it first."""
    store = ClusterStore(target)
    store.record(record.name)
    store.write(record)


@pytest.fixture
def there(anna: Target) -> Objects:
    found = shared.objects(anna)
    assert found is not None
    return found


def test_an_object_is_written_only_if_it_is_as_it_was_read(there: Objects) -> None:
    assert there.read("a b+c") is None
    first = there.write("a b+c", "one", None)
    with pytest.raises(Changed):
        there.write("a b+c", "two", None)
    second = there.write("a b+c", "two", first)
    with pytest.raises(Changed):
        there.write("a b+c", "three", first)
    stored = there.read("a b+c")
    assert stored is not None
    assert (stored.text, stored.etag) == ("two", second)
    assert timedelta() <= stored.age < timedelta(minutes=1)
    assert there.keys("a ") == ["a b+c"]
    there.remove("a b+c")
    there.remove("a b+c")
    assert there.keys("") == []
    with pytest.raises(Changed):
        there.write("a b+c", "three", second)


def test_a_write_whose_answer_was_lost_is_no_lost_race(there: Objects) -> None:
    """botocore sends the request again, and S3 refuses what the first one has written."""
    first = there.write("key", "one", None)
    assert there.write("key", "one", None) == first


def test_of_many_writers_at_once_one_wins(there: Objects) -> None:
    won: list[int] = []

    def write(number: int) -> None:
        try:
            there.write("race", str(number), None)
        except Changed:
            return
        won.append(number)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    stored = there.read("race")
    assert stored is not None
    assert [str(number) for number in won] == [stored.text]


def test_a_colleague_sees_the_cluster_and_its_end(anna: Target, ben: Target) -> None:
    ClusterStore(anna).write(a_record().now("ready"))
    known = ClusterStore(anna).folder("demo") / "known_hosts"
    known.write_text("198.18.0.10 ssh-ed25519 AAAA i-0\n")
    (known.parent / "id_ed25519").write_text("secret\n")
    ClusterStore(anna).share_host_keys("demo")
    ClusterStore(anna).save_inventory(make_inventory(2))

    assert ClusterStore(ben).records() == (a_record().now("ready"),)
    there: Inventory = ClusterStore(ben).inventory("demo")
    assert there.folder == ClusterStore(ben).folder("demo")
    assert there.nodes == make_inventory(2).nodes
    assert (there.folder / "known_hosts").read_text() == known.read_text()
    assert not (there.folder / "id_ed25519").exists(), "private keys stay where they were made"

    ClusterStore(ben).forget("demo")
    assert ClusterStore(anna).records() == ()
    assert not known.exists()
    assert not (known.parent / "id_ed25519").exists()
    assert shared.shared_names(anna) == []


def test_a_name_that_no_cluster_can_have_becomes_no_folder(there: Objects, anna: Target) -> None:
    ClusterStore(anna).write(a_record())
    for name in ("..", "Demo", "a b"):
        there.write(there.bucket.key("clusters", name, "cluster.json"), "{}", None)
    assert shared.shared_names(anna) == ["demo"]


def test_what_a_colleague_changes_is_read(anna: Target, ben: Target) -> None:
    ClusterStore(anna).write(a_record())
    changed = a_record().now("failed", "node1 is gone")
    change(ben, changed)
    assert ClusterStore(anna).record("demo") == changed


def test_a_write_after_a_colleagues_is_refused(anna: Target, ben: Target) -> None:
    ClusterStore(anna).write(a_record())
    store = ClusterStore(ben)
    assert store.record("demo") == a_record()
    change(anna, a_record().now("ready"))
    assert store.record("demo") == a_record(), "a command reads a record once"
    with pytest.raises(StateError) as refused:
        store.write(a_record().now("failed"))
    assert ben.bucket is not None
    assert str(refused.value) == (
        "the record of cluster 'demo' was not written: somebody else has changed its cluster.json"
        f" in {ben.bucket.url}; `gpuctl status` shows the cluster as it is now; then repeat this"
        " command"
    )
    assert ClusterStore(ben).record("demo") == a_record().now("ready")


def test_a_cluster_of_this_machine_alone_stays(anna: Target, ben: Target) -> None:
    """It is older than the backend; the first command that writes its record shares it."""
    alone = replace(anna, backend=None)
    ClusterStore(alone).write(a_record())
    ClusterStore(alone).save_inventory(make_inventory(2))
    assert ClusterStore(anna).record("demo") == a_record()
    assert ClusterStore(ben).record("demo") is None
    ClusterStore(anna).write(a_record().now("ready"))
    assert len(ClusterStore(anna).inventory("demo").nodes) == 2
    assert len(ClusterStore(ben).inventory("demo").nodes) == 2


def test_two_clusters_of_one_name_are_not_mixed(anna: Target, ben: Target) -> None:
    ours = a_record()
    tags = {**ours.resolved.tags, "gpuctl:id": "0a1b2c3d"}
    other = ours.model_copy(update={"resolved": ours.resolved.model_copy(update={"tags": tags})})
    ClusterStore(replace(ben, backend=None)).write(ours)
    ClusterStore(anna).write(other)
    (error,) = ClusterStore(ben).errors()
    assert str(error) == (
        f"cluster 'demo' of this machine is another one than 'demo' in {ben.backend};"
        " remove this machine's without `backend` in your settings: `gpuctl down demo`"
    )
    assert ClusterStore(replace(ben, backend=None)).record("demo") == ours


def test_a_cluster_made_anew_leaves_nothing_of_the_one_before(anna: Target, ben: Target) -> None:
    ClusterStore(anna).write(a_record())
    assert ClusterStore(ben).record("demo") is not None
    key = ClusterStore(ben).folder("demo") / "id_ed25519"
    key.write_text("for the first cluster\n")
    ClusterStore(anna).forget("demo")
    ours = a_record()
    tags = {**ours.resolved.tags, "gpuctl:id": "0a1b2c3d"}
    ClusterStore(anna).write(
        ours.model_copy(update={"resolved": ours.resolved.model_copy(update={"tags": tags})})
    )
    assert ClusterStore(ben).record("demo") is not None
    assert not key.exists()


def test_a_held_lock_names_its_holder(anna: Target, ben: Target) -> None:
    ClusterStore(anna).write(a_record())
    with ClusterStore(anna).lock("demo", "gpuctl up"):
        assert ClusterStore(ben).is_locked("demo")
        with (
            pytest.raises(
                InputError, match=r"^cluster 'demo' is being changed by `gpuctl up` of anna"
            ) as held,
            ClusterStore(ben).lock("demo", "gpuctl down demo"),
        ):
            pass
        assert held.value.hint == "wait for it or end it, then repeat this command"
    assert not ClusterStore(ben).is_locked("demo")
    with ClusterStore(ben).lock("demo", "gpuctl down demo"):
        assert ClusterStore(anna).is_locked("demo")


def leave_lock(
    name: str, target: Target, silent_s: float, there: Objects, clock: pytest.MonkeyPatch
) -> None:
    """Leave a lock behind, as a command does whose machine ends; it was renewed `silent_s` ago."""
    held = cluster_lock.acquire(name, "gpuctl up", there, SharedFiles(target))
    held._ended.set()
    read = Objects.read

    def aged(objects: Objects, key: str) -> object:
        stored = read(objects, key)
        ages = stored is not None and '"command":"gpuctl up"' in stored.text
        return replace(stored, age=timedelta(seconds=silent_s)) if stored and ages else stored

    clock.setattr(Objects, "read", aged)


def test_a_lock_that_nobody_renews_is_explained(
    anna: Target, ben: Target, there: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_lock("demo", anna, 120, there, monkeypatch)
    with pytest.raises(InputError) as held, ClusterStore(ben).lock("demo", "gpuctl down demo"):
        pass
    assert "which has not renewed its lock since " in held.value.message
    assert held.value.hint == "repeat this command in 180 s: it then takes the lock over"


def test_a_stale_lock_is_taken_over_and_its_holder_writes_nothing_more(
    anna: Target, ben: Target, there: Objects
) -> None:
    ClusterStore(anna).write(a_record())
    files = SharedFiles(anna)
    held = cluster_lock.acquire("demo", "gpuctl up", there, files)
    assert not cluster_lock.is_held("demo", ben, stale_s=0.0)
    taken = cluster_lock.acquire("demo", "gpuctl down demo", there, SharedFiles(ben), stale_s=0.0)
    held.renew()
    with pytest.raises(StateError, match="this command lost the cluster's lock to another one"):
        files.push("demo", "cluster.json", a_record().now("ready").model_dump_json())
    held.release()
    assert ClusterStore(anna).is_locked("demo"), "the new holder's lock stays"
    taken.release()
    assert not ClusterStore(anna).is_locked("demo")


def test_a_killed_command_of_this_machine_leaves_no_lock_that_holds(
    anna: Target, there: Objects
) -> None:
    """The kernel frees the lock of the state folder, so that nobody waits for the shared one."""
    cluster_lock.acquire("demo", "gpuctl up", there, SharedFiles(anna))._ended.set()
    with ClusterStore(anna).lock("demo", "gpuctl down demo"):
        pass
    assert there.keys(there.bucket.key("clusters")) == []


def extend(target: Target) -> None:
    """What `gpuctl extend` does with the record, once nobody else has the lock."""
    while True:
        try:
            store = ClusterStore(target)
            with store.lock("demo", "gpuctl extend"):
                known = store.known_record("demo")
                end = (known.lease.end if known.lease else known.created) + timedelta(minutes=1)
                lease = Lease(end=end, moved=datetime.now(UTC))
                store.write(known.model_copy(update={"lease": lease}))
        except InputError:  # the other one has the lock
            continue
        return


def take_commands(target: Target, count: int) -> None:
    """Extend with every fourth command; the others read, and see no end earlier than before."""
    latest = datetime.min.replace(tzinfo=UTC)
    for number in range(count):
        if number % 4 == 0:
            extend(target)
        else:
            known = ClusterStore(target).record("demo")
            assert known is not None
            end = known.lease.end if known.lease else known.created
            assert end >= latest
            latest = end


@pytest.mark.parametrize("commands", [24, pytest.param(100, marks=pytest.mark.thorough)])
def test_nothing_of_interleaved_commands_is_lost(anna: Target, ben: Target, commands: int) -> None:
    ClusterStore(anna).write(a_record())
    processes = multiprocessing.get_context("fork")
    both = [processes.Process(target=take_commands, args=(one, commands)) for one in (anna, ben)]
    for one in both:
        one.start()
    for one in both:
        one.join(240)
    assert [one.exitcode for one in both] == [0, 0]
    after = ClusterStore(anna).record("demo")
    assert after is not None
    assert after.lease is not None
    assert after.lease.end - after.created == timedelta(minutes=commands // 2)


def test_a_bucket_that_does_not_exist_is_named(anna: Target) -> None:
    with pytest.raises(CloudError) as error:
        ClusterStore(replace(anna, backend="s3://nobodys")).records()
    assert str(error.value) == (
        "the shared state in s3://nobodys cannot be used: AWS refused ListObjectsV2: NoSuchBucket:"
        " The specified bucket does not exist; create it once for the team:"
        " `aws s3 mb s3://nobodys`, or correct `backend`"
    )


def test_a_bucket_that_cannot_be_reached_is_named(anna: Target) -> None:
    away = replace(anna, endpoint="http://127.0.0.1:9")
    with pytest.raises(
        CloudError, match=r"^the shared state in s3://team-.* cannot be used: AWS cannot be reached"
    ):
        ClusterStore(away).record("demo")


def test_the_policy_for_a_bucket_suffices_and_names_what_is_missing(
    empty_region: Target, tmp_path: Path
) -> None:
    assert empty_region.endpoint is not None
    make_bucket("team", empty_region.endpoint, KEY)
    target = replace(empty_region, backend="s3://team/gpus")
    allowed = tmp_path / "policy.json"
    fault_table.write(tmp_path / "faults.json", {fault_table.POLICY: (str(allowed),)})
    document = policy((), target.bucket)
    assert [(one["Action"], one["Resource"]) for one in document["Statement"]] == [
        (["s3:ListBucket"], "arn:*:s3:::team"),
        (["s3:DeleteObject", "s3:GetObject", "s3:PutObject"], "arn:*:s3:::team/gpus/*"),
    ]
    allowed.write_text(json.dumps(document))
    assert shared.try_bucket(target) == 0
    ClusterStore(target).write(a_record())
    assert shared.try_bucket(target) == 1
    with pytest.raises(CloudError, match="not authorized to perform: s3:GetObject"):
        shared.try_bucket(replace(target, backend="s3://team/other"))
    document["Statement"][1]["Action"].remove("s3:PutObject")
    allowed.write_text(json.dumps(document))
    with pytest.raises(CloudError) as denied:
        ClusterStore(target).write(a_record().now("ready"))
    assert denied.value.message.startswith(
        "the shared state in s3://team/gpus cannot be used: AWS refused PutObject: AccessDenied:"
    )
    assert denied.value.hint == (
        "allow s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket: `gpuctl iam-policy`"
        " prints the policy"
    )
