"""`gpuctl cost`: what was kept, as a table and as JSON."""

import json
from datetime import UTC, datetime, timedelta

from typer.testing import CliRunner

from cli.main import app
from config.errors import InputError
from config.target import Target
from engine.record.history import History
from provision.billing.ledger import keep
from tests.engine.conftest import make_plan
from tests.provision.test_ownership import with_id
from tests.terminals import lines_on_terminal


def kept(target: Target) -> None:
    """A cluster of three hours that ended an hour ago and cost $30."""
    now = datetime.now(UTC)
    keep(with_id("aaaa", created=now - timedelta(hours=4)), now - timedelta(hours=1), 30.0, target)


def test_clusters_and_their_sum_are_printed(remembered: Target) -> None:
    kept(remembered)
    shown = CliRunner().invoke(app, ["cost"]).stdout.splitlines()
    assert shown[0].split() == ["CLUSTER", "NODE", "HOURS", "COST", "SHARE"]
    assert shown[1].split() == ["demo", "(aaaa)", "6.0", "$30.00", "██████", "100", "%"]
    assert shown[2].startswith("Since ")
    assert ": about $30.00 on demand" in shown[2]
    (owner,) = CliRunner().invoke(app, ["cost", "--by", "user"]).stdout.splitlines()[1:-1]
    assert owner.split() == ["(no", "owner)", "6.0", "$30.00", "██████", "100", "%"]


def test_costs_on_a_narrow_terminal_lack_columns_but_not_what_was_asked_for(
    remembered: Target,
) -> None:
    kept(remembered)
    whole = CliRunner().invoke(app, ["cost"]).stdout.splitlines()
    assert lines_on_terminal("cost")[:2] == whole[:2]
    table = lines_on_terminal("cost", columns=36)[:2]
    assert table == ["CLUSTER      NODE HOURS    COST", "demo (aaaa)         6.0  $30.00"]
    assert lines_on_terminal("cost", columns=24)[:2] == [
        "CLUSTER        COST",
        "demo (aaaa)  $30.00",
    ]
    (head, row, *_) = lines_on_terminal("cost", "--by", "run", columns=30)
    assert (head.split(), row.split()) == (
        ["RUN", "CLUSTER", "COST"],
        ["(no", "run)", "demo", "$30.00"],
    )


def test_runs_are_taken_from_the_history(remembered: Target) -> None:
    kept(remembered)
    plan = make_plan(nodes=1)
    with History(remembered.runs) as history:
        history.begin(plan)  # after the cluster's end
    document = json.loads(CliRunner().invoke(app, ["cost", "--by", "run", "--json"]).stdout)
    assert [row["name"] for row in document["rows"]] == ["(no run)"]
    assert document["total_usd"] == 30.0
    assert document["by"] == "run"


def test_without_a_cluster_nothing_was_spent(remembered: Target) -> None:
    kept(remembered)
    shown = CliRunner().invoke(app, ["cost", "--since", "30m"])
    assert shown.stdout.startswith("No cluster existed since ")
    wrong = CliRunner().invoke(app, ["cost", "--since", "soon"])
    assert isinstance(wrong.exception, InputError)
    assert str(wrong.exception).startswith("--since is 'soon': it must be a whole number")
