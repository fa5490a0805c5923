"""A bastion that is made anew accepts the keys of colleagues; one that exists is not replaced."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.target import Target
from nodes.keys import generate_pair
from provision import access
from provision.preflight import ssh_access
from provision.preflight.preflight import resolve
from provision.state import record
from provision.state.record import ClusterRecord, Grant
from provision.state.store import ClusterStore
from tests.aws_calls import Answer, ApiCall
from tests.engine.conftest import make_inventory

NOW = datetime(2026, 11, 25, 9, 0, tzinfo=UTC)
ANN, BOB = (generate_pair(name)[1].rpartition(" ")[0] for name in ("ann", "bob"))


def cluster(**changes: Any) -> Cluster:
    fields = {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge"}
    return Cluster.model_validate(fields | changes)


def remember(resolved: Resolved, target: Target, *grants: Grant) -> None:
    known = record.new_record(resolved, NOW)
    ClusterStore(target).write(known.model_copy(update={"grants": grants}))


def granted(key: str, *, is_revoked: bool = False) -> Grant:
    return Grant(key=key, name="somebody", since=NOW, is_revoked=is_revoked)


@pytest.fixture
def there(target: Target, answer_calls: Callable[[Answer], None]) -> dict[str, str]:
    """The state of each instance of the cluster, as AWS lists them."""
    states = {"demo-bastion": "running", "demo-node0": "running"}

    def answer(call: ApiCall) -> Any:
        if call.operation != "DescribeInstances":
            return call.ask()
        known = ClusterStore(target).record("demo")
        tags = {"gpuctl:cluster": "demo", "gpuctl:id": known.id if known else ""}
        instances = [
            {
                "InstanceId": "i-1",
                "State": {"Name": state},
                "Tags": [{"Key": k, "Value": v} for k, v in {**tags, "Name": name}.items()],
            }
            for name, state in states.items()
        ]
        return {"Reservations": [{"Instances": instances}]}

    answer_calls(answer)
    return states


def test_a_bastion_that_is_gone_gets_the_keys_that_have_access(
    target: Target, there: dict[str, str]
) -> None:
    was = resolve(cluster(), ClusterStore(target))
    remember(was, target, granted(ANN), granted(BOB, is_revoked=True))
    assert resolve(cluster(), ClusterStore(target)).bastion_user_data == was.bastion_user_data
    there["demo-bastion"] = "terminated"
    anew = resolve(cluster(), ClusterStore(target))
    assert f"  - {was.public_key}\n  - {ANN} (granted by gpuctl)\n" in anew.bastion_user_data
    assert BOB not in anew.bastion_user_data
    assert anew.user_data == was.user_data, "no node is replaced"

    # It is kept as it was made, whoever gets or loses access, until it is gone again.
    there["demo-bastion"] = "running"
    remember(anew, target, granted(BOB))
    assert resolve(cluster(), ClusterStore(target)).bastion_user_data == anew.bastion_user_data
    there.clear()
    last = resolve(cluster(), ClusterStore(target)).bastion_user_data
    assert (ANN in last, BOB in last) == (False, True)


def test_the_next_bastion_does_not_get_the_last_key_that_was_revoked(
    target: Target, there: dict[str, str]
) -> None:
    was = resolve(cluster(), ClusterStore(target))
    remember(was, target, granted(ANN))
    there.clear()
    anew = resolve(cluster(), ClusterStore(target))
    assert ANN in anew.bastion_user_data
    remember(anew, target)  # all machines have confirmed that her key is gone
    assert resolve(cluster(), ClusterStore(target)).bastion_user_data == was.bastion_user_data


@pytest.mark.parametrize("had_granted_keys", [False, True])
def test_the_end_of_up_removes_a_revoked_key(
    target: Target,
    there: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    had_granted_keys: bool,
) -> None:
    resolved = resolve(cluster(), ClusterStore(target))
    if had_granted_keys:
        remember(resolved, target, granted(ANN))
        there.clear()
        resolved = resolve(cluster(), ClusterStore(target))
    remember(resolved, target)
    asked: list[tuple[Grant, ...]] = []

    def change(
        known: ClusterRecord, grants: tuple[Grant, ...], *_: object
    ) -> tuple[ClusterRecord, dict[str, object]]:
        asked.append(grants)
        return known, {}

    monkeypatch.setattr(access, "_change", change)
    store = ClusterStore(target)
    access.install_grants(make_inventory(2), store.known_record("demo"), store)
    assert asked == ([()] if had_granted_keys else [])


def test_a_bastion_that_the_file_changes_gets_the_keys_too(
    target: Target, there: dict[str, str]
) -> None:
    del there  # the bastion runs
    remember(resolve(cluster(), ClusterStore(target)), target, granted(ANN))
    assert ANN in resolve(cluster(lifetime={"max": "8h"}), ClusterStore(target)).bastion_user_data


def test_a_cluster_without_a_bastion_keeps_its_user_data(
    target: Target, there: dict[str, str]
) -> None:
    there.clear()
    direct = cluster(network={"access": "elastic-ip"})
    was = resolve(direct, ClusterStore(target))
    remember(was, target, granted(ANN))
    assert resolve(direct, ClusterStore(target)).bastion_user_data == was.bastion_user_data


def test_without_granted_keys_aws_is_not_asked(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    was = resolve(cluster(), ClusterStore(target))
    remember(was, target, granted(ANN, is_revoked=True))
    monkeypatch.delattr(ssh_access, "find_instances")
    assert resolve(cluster(), ClusterStore(target)).bastion_user_data == was.bastion_user_data
