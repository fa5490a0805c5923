"""`gpuctl down`: what it removed and what the cluster cost, from a region's own times."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.client import BaseClient
from typer.testing import CliRunner

import provision.down
from cli.main import app
from config.target import Target
from engine.history import History
from provision.aws.clients import client, forget_clients
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.down import Teardown
from provision.records import record
from tests.engine.conftest import make_plan
from tests.infra.conftest import worlds  # noqa: F401  a fixture is found by import
from tests.infra.region import CREDENTIALS
from tests.provision.conftest import empty_region  # noqa: F401  a fixture is found by import
from tests.provision.test_record import a_record
from tests.provision.test_sweep import make_cluster

HOURS = 3


class NoStack:
    """Pulumi's part of a cluster of which it knows nothing: no engine is needed."""

    def __init__(self, *_: object) -> None:
        pass

    def destroy(self, report: object) -> None:
        pass

    def remove(self) -> None:
        pass


@pytest.fixture
def old_cluster(
    empty_region: Target,  # noqa: F811
    remembered: Target,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """A cluster of one p4d node with its NAT gateway, up for three hours."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": str(empty_region.endpoint)}.items():
        monkeypatch.setenv(name, value)
    forget_clients()  # a command has one environment, and its clients are those of it
    monkeypatch.setattr(provision.down, "Stack", NoStack)
    monkeypatch.setattr(provision.down, "find_engine", lambda report: None)
    make_cluster(
        client(empty_region, "ec2"), image_id(client(empty_region, "ssm"), BASTION_IMAGE), "demo"
    )
    since = datetime.now(UTC) - timedelta(hours=HOURS)
    ready = a_record().model_copy(update={"created": since}).now("ready")
    record.write(ready, remembered)
    _made(since, monkeypatch)
    return "demo"


def _made(since: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The region says that instances and gateways have been there since then."""
    ask: Any = getattr(BaseClient, "_make_api_call")  # noqa: B009 its stubs do not know it

    def asked(self: object, operation: str, request: object) -> Any:
        answer = ask(self, operation, request)
        for reservation in answer.get("Reservations", ()):
            for instance in reservation["Instances"]:
                instance["LaunchTime"] = since
        for gateway in answer.get("NatGateways", ()):
            gateway["CreateTime"] = since
        return answer

    monkeypatch.setattr(BaseClient, "_make_api_call", asked)


def test_the_cost_is_shown(old_cluster: str) -> None:
    done = CliRunner().invoke(app, ["down", old_cluster, "--yes"])
    assert done.exit_code == 0, done.output
    (last,) = done.stdout.splitlines()[-1:]
    # Three hours of p4d.24xlarge at $21.957642, and of a NAT gateway with its address at $0.05.
    found = re.fullmatch(
        r"Cluster demo is gone: (\d+) resources removed, up 3h \d\dm,"
        r" about \$([\d.]+) at list price\.",
        last,
    )
    assert found, last
    assert int(found[1]) > 10
    assert float(found[2]) == pytest.approx(HOURS * (21.957642 + 0.045 + 0.005), rel=0.05)


def test_the_cost_is_in_the_json(old_cluster: str) -> None:
    done = CliRunner().invoke(app, ["down", old_cluster, "--yes", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["name"] == "demo"
    assert told["cost_usd"] == pytest.approx(HOURS * (21.957642 + 0.045 + 0.005), rel=0.05)
    assert told["seconds_up"] == pytest.approx(HOURS * 3600, abs=600)
    assert len(told["removed"]) > 10


@pytest.mark.parametrize("stays", [True, False])
def test_runs_are_lost_with_this_machines_cluster_alone(
    remembered: Target, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    record.write(a_record().now("ready"), remembered)
    plan = make_plan(nodes=1)
    with History(remembered.runs) as history:
        history.begin(plan)

    def take_down(name: str, *_: object) -> Teardown:
        if not stays:
            record.forget(name, remembered)
        return Teardown(name, (), 1.0, None)

    monkeypatch.setattr("provision.down.down", take_down)
    done = CliRunner().invoke(app, ["down", "demo", "--id", "aaaa", "--yes"])
    assert done.exit_code == 0, done.output
    with History(remembered.runs) as history:
        assert history.find(plan.run_id).is_over is not stays
