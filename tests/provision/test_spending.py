"""What was spent in a time, by cluster, run, tag, user and month: arithmetic on what is kept."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from config.target import Target
from provision.billing.ledger import ClusterCost, cluster_costs, keep
from provision.billing.report import (
    NO_OWNER,
    NO_RUN,
    NO_TAG,
    RunTime,
    Spending,
    spending,
    total_usd,
)
from provision.state.store import ClusterStore
from tests.provision.test_ownership import with_id
from tests.provision.test_record import a_record

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
SINCE = NOW - timedelta(hours=24)
SOURCE = "AWS's price list of 2026-11-01, us-east-1"


def at(hours: float) -> datetime:
    """So many hours ago."""
    return NOW - timedelta(hours=hours)


def cluster(
    name: str = "demo", began: float = 10, ended: float | None = 2, **f: Any
) -> ClusterCost:
    """A cluster of four nodes at $10 per hour each, with $1 per hour for access to them."""
    values: dict[str, Any] = {
        "id": "aaaa",
        "owner": "ann",
        "region": "us-east-1",
        "instance_type": "p4d.24xlarge",
        "nodes": 4,
        "tags": {"team": "ml", "project": "x"},
        "node_usd": 10.0,
        "hourly_usd": 41.0,
        "source": SOURCE,
        "cost_usd": None if ended is None else 320.0,
        **f,
    }
    end = None if ended is None else at(ended)
    return ClusterCost(name=name, began=at(began), ended=end, **values)


def row(name: str, hours: float, usd: float | None, of: str = "demo") -> Spending:
    about: Any = pytest.approx
    return Spending(name, of, about(hours), usd and about(usd), (SOURCE,))


def test_a_cluster_costs_what_down_reported_and_else_by_its_price() -> None:
    ended, lives = cluster(), cluster("other", 5, None)
    found = spending([ended, lives], [], SINCE, NOW, "cluster")
    assert found == (row("demo (aaaa)", 32, 320), row("other (aaaa)", 20, 205, "other"))
    assert total_usd(found) == pytest.approx(525)


def test_only_the_part_within_the_time_counts() -> None:
    long = cluster(began=44, ended=4)  # 40 hours, 20 of them within a day
    gone = cluster(began=60, ended=24)
    assert spending([long, gone], [], SINCE, NOW, "cluster") == (row("demo (aaaa)", 80, 160),)
    assert spending([cluster(began=-1, ended=None)], [], SINCE, NOW, "cluster") == ()


def test_an_unknown_price_is_no_zero() -> None:
    found = spending([cluster(cost_usd=None, hourly_usd=None)], [], SINCE, NOW, "cluster")
    assert [one.cost_usd for one in found] == [None]
    assert total_usd(found) is None


def test_tags_are_summed_and_none_is_a_row_too() -> None:
    found = spending(
        [cluster(), cluster("b", tags={"team": "ml"}), cluster("c", tags={})],
        [],
        SINCE,
        NOW,
        "tag",
    )
    assert found == (
        row("team=ml", 64, 640, ""),
        row(NO_TAG, 32, 320, ""),
        row("project=x", 32, 320, ""),
    )


def test_owners_are_summed() -> None:
    found = spending(
        [cluster(), cluster("b"), cluster("c", owner="bo", ended=6), cluster("d", owner="")],
        [],
        SINCE,
        NOW,
        "user",
    )
    assert found == (row("ann", 64, 640, ""), row(NO_OWNER, 32, 320, ""), row("bo", 16, 320, ""))


def test_months_are_in_their_order_and_have_the_part_of_a_cluster_in_each() -> None:
    begin = datetime(2026, 10, 31, 22, tzinfo=UTC)  # two hours before November, UTC
    end = datetime(2026, 12, 1, 1, tzinfo=UTC)
    hours = 2 + 30 * 24 + 1
    one = cluster(cost_usd=float(hours)).model_copy(update={"began": begin, "ended": end})
    later = end + timedelta(days=40)
    assert spending([one], [], begin - timedelta(days=300), later, "month") == (
        row("2026-10", 2 * 4, 2, ""),
        row("2026-11", 720 * 4, 720, ""),
        row("2026-12", 4, 1, ""),
    )
    assert spending([one], [], datetime(2026, 11, 30, tzinfo=UTC), later, "month") == (
        row("2026-11", 24 * 4, 24, ""),
        row("2026-12", 4, 1, ""),
    )
    # A month's first hours in another zone are the month before in UTC.
    lives = cluster(ended=None).model_copy(update={"began": begin})
    east = begin.astimezone(timezone(timedelta(hours=5)))
    assert spending([lives], [], east, begin + timedelta(hours=1), "month") == (
        row("2026-10", 4, 41, ""),
    )


def test_runs_cost_their_nodes_and_the_rest_is_a_row() -> None:
    runs = [
        RunTime("all-000001", "demo", 4, at(9), at(7)),  # 8 node hours
        RunTime("half-000001", "demo", 2, at(6), None),  # until the cluster's end: 8 node hours
        RunTime("before-000001", "demo", 4, at(30), at(29)),  # on an earlier cluster of this name
        RunTime("after-000001", "demo", 4, at(1), None),  # on a later one
        RunTime("other-000001", "other", 4, at(9), at(7)),
    ]
    assert spending([cluster()], runs, SINCE, NOW, "run") == (
        row(NO_RUN, 16, 160),
        row("all-000001", 8, 80),
        row("half-000001", 8, 80),
    )


def test_what_was_kept_is_read_again_beside_what_exists(tmp_path: Path) -> None:
    target = Target("test", "us-east-1", tmp_path)
    old = with_id("aaaa", created=at(10))
    keep(old, at(2), 320.0, target)
    keep(None, at(2), 1.0, target)  # nothing is known of it
    path = tmp_path / "costs.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("a") as file:
        file.write('{"name": "torn')
    ClusterStore(target).write(with_id("bbbb", created=at(1)))
    (first, second), torn = cluster_costs(target)
    assert torn == 1
    assert (first.id, first.ended, first.cost_usd) == ("aaaa", at(2), 320.0)
    assert (first.nodes, first.instance_type) == (2, "p4d.24xlarge")
    assert "gpuctl:cluster" not in first.tags
    assert (second.id, second.ended, second.cost_usd) == ("bbbb", None, None)
    assert second.source == a_record().resolved.price_source
