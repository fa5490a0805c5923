"""`gpuctl run` from the file to the end of the job: agents are real, nodes are this machine."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner, Result

from cli.main import app
from config.errors import CloudError, InputError
from config.target import Target
from engine.contract.plan import LaunchPlan
from engine.record.history import History
from engine.record.metrics_record import recorded_samples
from engine.record.result import RunResult
from engine.record.run_errors import RunGoesOn, RunLost
from provision.aws.resources import find_all
from tests.aws_calls import Answer, ApiCall
from tests.cli.conftest import is_removed, put_in_aws, remember
from tests.cli.test_ps import earlier
from tests.engine.conftest import make_inventory
from tests.engine.session.test_session import (
    LocalConnections,
    connections,  # noqa: F401  a fixture
    on_this_machine,
)
from tests.small_disks import small_disk

pytestmark = pytest.mark.slow

SECRET = """\
type: task
name: job
nodes: 2
commands: ['echo "$DSTACK_NODE_RANK of $DSTACK_NODES_NUM: $TOKEN, ${#TOKEN} letters"']
env: {TOKEN: {secret: MY_TOKEN}}
"""


@pytest.fixture
def cluster(connections: LocalConnections, remembered: Target) -> Target:  # noqa: F811
    """Two nodes that are ready, whose commands run here."""
    remember(on_this_machine(make_inventory(2)), remembered)
    return remembered


@pytest.fixture
def gpuctl_run(tmp_path: Path) -> Callable[..., Result]:
    def call(text: str, *options: str) -> Result:
        file = tmp_path / "run.yaml"
        file.write_text(text)
        return CliRunner().invoke(app, ["run", str(file), *options])

    return call


def runs(target: Target) -> int:
    with History(target.runs) as history:
        return len(history.runs())


def test_secrets_are_looked_up_and_reach_the_job(
    cluster: Target, gpuctl_run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")
    done = gpuctl_run(SECRET)
    assert done.exit_code == 0, done.output
    assert {"[node0] 0 of 2: ***, 15 letters", "[node1] 1 of 2: ***, 15 letters"} <= set(
        done.stdout.splitlines()
    )
    assert "hunter2" not in done.output
    assert runs(cluster) == 1
    (metrics,) = cluster.runs.glob("job-*/metrics.jsonl.gz")
    assert {one.rank for one in recorded_samples(cluster.runs, metrics.parent.name)} == {0, 1}


def test_a_secret_that_is_nowhere_ends_it_before_anything_runs(
    cluster: Target, gpuctl_run: Callable[..., Result]
) -> None:
    done = gpuctl_run(SECRET)
    assert isinstance(done.exception, InputError)
    assert "secret MY_TOKEN" in str(done.exception)
    assert runs(cluster) == 0


def test_a_run_gets_no_credential_that_nobody_allowed(
    cluster: Target, gpuctl_run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-hunter2")
    strangers = SECRET.replace("MY_TOKEN", "AWS_SECRET_ACCESS_KEY")
    refused = gpuctl_run(strangers)
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == (
        "there is no terminal to ask on: job takes AWS_SECRET_ACCESS_KEY from your environment."
        " Give it to the job?; add --secret AWS_SECRET_ACCESS_KEY if that is what you want"
    )
    assert runs(cluster) == 0
    allowed = gpuctl_run(strangers, "--secret", "AWS_SECRET_ACCESS_KEY")
    assert allowed.exit_code == 0, allowed.output
    assert "[node0] 0 of 2: ***, 15 letters" in allowed.stdout.splitlines()


def test_a_credential_for_notifications_has_to_be_allowed_too(
    cluster: Target, gpuctl_run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_WEBHOOK", "https://hooks.slack.com/services/T0/B0/hidden")
    notify = "notify: [{webhook: {secret: SLACK_WEBHOOK}, form: slack}]\n"
    refused = gpuctl_run(f"type: task\nname: job\ncommands: [x]\n{notify}")
    assert str(refused.exception) == (
        "there is no terminal to ask on: job takes SLACK_WEBHOOK from your environment."
        " Give it to its notifications?; add --secret SLACK_WEBHOOK if that is what you want"
    )


def test_a_notification_that_fails_is_shown_where_the_run_is(
    cluster: Target, gpuctl_run: Callable[..., Result]
) -> None:
    notify = "notify: [{command: echo no mail here >&2; exit 1, on: [start]}]\n"
    done = gpuctl_run(f"type: task\nname: job\ncommands: [echo hi]\n{notify}")
    assert done.exit_code == 0, done.output
    warning = "notify[0] was not notified of 'start' after 3 tries: exit code 1: no mail here"
    lines = done.stdout.splitlines()
    assert f"-- warning: {warning}" in lines
    assert f"Warning: {warning}" in lines
    assert "notified" not in done.output.replace("was not notified", "")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_dry_run_shows_the_secrets_name_and_looks_nothing_up(
    cluster: Target, gpuctl_run: Callable[..., Result], options: tuple[str, ...]
) -> None:
    done = gpuctl_run(SECRET, "--dry-run", *options)
    assert done.exit_code == 0
    assert "MY_TOKEN" in done.stdout
    assert runs(cluster) == 0


def test_warnings_of_the_plan_are_on_stderr(
    cluster: Target, gpuctl_run: Callable[..., Result]
) -> None:
    settings = "network: efa\nenv: {NCCL_NET: Socket, NCCL_P2P_DISABLE: '1'}\n"
    text = f"type: task\nname: job\ncommands: [x]\n{settings}"
    assert gpuctl_run(text, "--dry-run", "--json").stderr == (
        "gpuctl: warning: env NCCL_P2P_DISABLE disables NVLink between the GPUs of a node; leave it"
        " out\n"
        "gpuctl: warning: env NCCL_NET makes NCCL use sockets; leave it out, or set"
        " `network: tcp`\n"
    )


def test_the_dashboard_is_said_before_the_job_begins(
    cluster: Target, gpuctl_run: Callable[..., Result]
) -> None:
    done = gpuctl_run("type: ray\nname: job\nnodes: 2\ncommands: [x]\n")
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith("-- dashboard http://127.0.0.10:8265: `gpuctl ssh demo node0 -- ")
    assert second.startswith("-- run job-")


DESTROYED = "type: task\nname: job\nnodes: 2\ncommands: [echo runs]\n"


@pytest.fixture
def rented(
    cluster: Target,
    aws: Target,
    without_engine: None,
    connections: LocalConnections,  # noqa: F811
) -> Iterator[Target]:
    """The cluster, which AWS knows; its nodes end with it."""
    put_in_aws(cluster, aws)
    yield cluster
    connections.end()


def finished(plan: LaunchPlan) -> RunResult:
    now = datetime.now(UTC)
    return RunResult(
        run_id=plan.run_id,
        status="done",
        exit_code=0,
        first_failed_rank=None,
        first_failed_node=None,
        reason="",
        last_lines=(),
        started=now,
        ended=now,
    )


def running(monkeypatch: pytest.MonkeyPatch, end: Callable[[LaunchPlan], RunResult]) -> None:
    """The run ends as `end` says; what it does on nodes is tested elsewhere."""

    async def run(plan: LaunchPlan, *_: object) -> RunResult:
        return end(plan)

    monkeypatch.setattr("engine.session.session.run", run)


def test_the_cluster_goes_before_the_result_is_printed(
    rented: Target, aws: Target, gpuctl_run: Callable[..., Result]
) -> None:
    done = gpuctl_run(DESTROYED, "--on-stop", "destroy")
    assert done.exit_code == 0, done.output
    assert (find_all(aws, "demo"), is_removed(rented)) == ([], True)
    gone, verdict = (done.stdout.index(text) for text in ("VPC vpc-", "\nRun job-"))
    assert gone < verdict


def test_a_run_that_goes_on_keeps_its_cluster(
    rented: Target, gpuctl_run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_on(plan: LaunchPlan) -> RunResult:
        raise RunGoesOn(plan, "nobody reads its output")

    running(monkeypatch, go_on)
    done = gpuctl_run(DESTROYED, "--on-stop", "destroy")
    assert isinstance(done.exception, RunGoesOn)
    assert not is_removed(rented)


def test_a_run_that_is_lost_does_not(
    rented: Target, gpuctl_run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(plan: LaunchPlan) -> RunResult:
        raise RunLost("node0 was lost", "")

    running(monkeypatch, lose)
    done = gpuctl_run(DESTROYED, "--on-stop", "destroy")
    assert isinstance(done.exception, RunLost)
    assert is_removed(rented)


def test_a_run_that_may_have_left_its_results_in_shared_storage_keeps_it(
    rented: Target, gpuctl_run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(plan: LaunchPlan) -> RunResult:
        error = RunLost("node0 was lost", "")
        error.saved = "/shared/gpuctl/saved/job-000001"
        raise error

    running(monkeypatch, lose)
    done = gpuctl_run(DESTROYED, "--on-stop", "destroy")
    assert isinstance(done.exception, RunLost)
    assert not is_removed(rented)
    assert (
        "-- cluster demo is not removed: its nodes have ended, and"
        " /shared/gpuctl/saved/job-000001 may have what the run left\n"
    ) in done.output


def test_a_removal_that_fails_is_told_behind_the_result(
    rented: Target, gpuctl_run: Callable[..., Result], answer_calls: Callable[[Answer], None]
) -> None:
    def refuse(call: ApiCall) -> Any:
        if call.operation == "DeleteVpc":
            raise ClientError({"Error": {"Code": "UnauthorizedOperation"}}, call.operation)
        return call.ask()

    answer_calls(refuse)
    done = gpuctl_run(DESTROYED, "--on-stop", "destroy")
    assert "Run job-" in done.stdout.splitlines()[-1]
    assert isinstance(done.exception, CloudError)
    assert str(done.exception).endswith(
        "; its nodes power off by themselves within 3 minutes, other resources bill on"
    )


def test_whose_credentials_could_not_remove_the_cluster_runs_nothing(
    cluster: Target, aws: Target, gpuctl_run: Callable[..., Result]
) -> None:
    put_in_aws(cluster, aws, account="999999999999")
    done = gpuctl_run(DESTROYED, "--on-stop", "destroy")
    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith("cluster 'demo' is in AWS account 999999999999, these")
    assert runs(cluster) == 0


def test_logs_of_old_runs_go_when_a_new_one_begins(
    cluster: Target, gpuctl_run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")
    earlier(cluster, "old", 31)
    done = gpuctl_run(SECRET)
    assert done.exit_code == 0, done.output
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("-- logs removed")]
    assert told.endswith(" KiB freed (30 days and 10 GiB are kept): old-000001")
    assert len(list(cluster.runs.glob("*/journal.jsonl"))) == 1
    assert runs(cluster) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk: root")
def test_logs_that_cannot_be_removed_fail_no_run(
    cluster: Target, gpuctl_run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")
    old = cluster.runs / earlier(cluster, "old", 31)
    with small_disk(old / "busy", "1m"):
        done = gpuctl_run(SECRET)
    assert done.exit_code == 0, done.output
    assert f"gpuctl: warning: {old} cannot be removed: Device or resource busy; " in done.stderr
