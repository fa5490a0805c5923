"""Runs from Python: agents are real, nodes are this machine."""

import json
import logging
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from config.cluster.cluster_file import Budget
from config.errors import InputError
from config.loading.load import load_run
from config.target import Target
from engine.contract.event import Event
from engine.contract.plan import BudgetPlan
from engine.contract.worker_events import Output
from engine.plan.notification_examples import examples
from operations import known, prepared_run, runs
from operations.chosen_target import ChosenTarget, Places
from provision.state.store import ClusterStore
from tests.engine.conftest import make_inventory

pytestmark = pytest.mark.slow

HOME = Path(__file__).parents[2]
HERE = ChosenTarget(region="us-east-1")


def prepared(tmp_path: Path, text: str) -> prepared_run.PreparedRun:
    file = tmp_path / "run.yaml"
    file.write_text(f"type: task\nname: job\nnodes: 2\n{text}")
    return prepared_run.prepare(HERE, load_run(file), file)


def ready(tmp_path: Path, command: str) -> runs.ReadyRun:
    return runs.make_ready(
        HERE, prepared(tmp_path, f"commands: ['{command}']\n"), check_nodes=False
    )


def test_a_prepared_run_names_what_a_person_has_to_agree_to(
    cluster: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-hunter2")
    (tmp_path / "data").mkdir()
    (tmp_path / "runs").mkdir()
    run = prepared(
        tmp_path / "runs",
        "commands: [x]\nenv: {KEY: {secret: AWS_SECRET_ACCESS_KEY}}\nworkdir: ../data\n",
    )
    assert run.credentials == (prepared_run.Credential("AWS_SECRET_ACCESS_KEY", "the job"),)
    assert run.outside_paths == (tmp_path / "data",)
    assert known.list_runs(HERE) == (), "nothing was started"


def test_a_run_with_notifications_has_the_budget_of_its_cluster(
    cluster: Target, tmp_path: Path
) -> None:
    """Two p4d.24xlarge, a bastion, a NAT gateway and two addresses: $43.99 an hour."""
    store = ClusterStore(cluster)
    record = store.known_record("demo")
    planned = record.resolved.cluster.model_copy(update={"budget": Budget(max_total=400)})
    resolved = record.resolved.model_copy(update={"cluster": planned})
    store.write(record.model_copy(update={"resolved": resolved}))
    notify = "commands: [x]\nnotify: [{command: x}]\n"
    hourly = 2 * 21.957642 + 0.0208 + 0.045 + 2 * 0.005
    budget = prepared(tmp_path, notify).plan.budget
    assert budget is not None
    assert budget.hourly_usd == pytest.approx(hourly)
    assert budget == BudgetPlan(400, 320, budget.hourly_usd, record.created.timestamp())
    assert prepared(tmp_path, "commands: [x]\n").plan.budget is None, "nobody is notified"
    store.write(record)
    assert prepared(tmp_path, notify).plan.budget is None, "the file has no budget"


@pytest.mark.parametrize(
    ("chosen", "command"),
    [
        (ChosenTarget(), "gpuctl"),
        (
            ChosenTarget(lab=Places("b"), backend="s3://ours"),
            "gpuctl --lab-name b --backend s3://ours",
        ),
        (ChosenTarget(region="r", profile="ann b"), "gpuctl --region r --profile 'ann b'"),
    ],
)
def test_commands_in_notifications_have_the_options_of_the_runs_client(
    chosen: ChosenTarget, command: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("type: task\nname: job\nnodes: 2\ncommands: [x]\n")
    run = prepared_run.prepare(chosen, load_run(file), file, inventory=make_inventory(2))
    assert run.plan.gpuctl == command
    texts = {notice.event: notice.text for notice in examples(run.plan, 0)}
    run_id = run.plan.run_id
    assert f"`{command} attach {run_id}` makes lost nodes again" in texts["waiting"]
    assert f"the rest costs until `{command} down demo`" in texts["lease"]
    assert f"`{command} down demo` ends the cost" in texts["budget"]


def test_a_run_whose_port_is_taken_does_not_start(cluster: Target, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError) as caught:
            runs.make_ready(HERE, prepared(tmp_path, f"commands: [x]\nports: ['{port}']\n"))
    assert str(caught.value) == (
        f"ports cannot be forwarded to this machine: {port} is in use; write another port before"
        f" the colon, or a star for any free port: '*:{port}'"
    )
    assert known.list_runs(HERE) == (), "nothing was started"


def test_a_run_is_followed_to_its_end(cluster: Target, tmp_path: Path) -> None:
    events: list[Event] = []
    ended = runs.follow(HERE, ready(tmp_path, "echo hi; exit 3"), on_event=events.append)
    assert (ended.exit_code, ended.teardown, ended.outputs) == (3, None, None)
    assert {event.text for event in events if isinstance(event, Output)} == {"hi"}
    (run,) = known.list_runs(HERE)
    assert (run.status, run.record.exit_code) == ("failed", 3)
    with pytest.raises(InputError) as caught:
        runs.stop(HERE, "job")
    assert str(caught.value) == f"run {run.record.run_id} is over (failed); see `gpuctl ps`"


def test_events_of_a_run_are_logged_without_its_output(
    cluster: Target, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gpuctl")
    runs.follow(HERE, ready(tmp_path, "echo printed"), on_event=lambda _: None)
    logged = [text for text in caplog.messages if text.startswith("run {")]
    kinds = [json.loads(text.removeprefix("run "))["kind"] for text in logged]
    assert (kinds[0], kinds[-1]) == ("run_started", "run_finished")
    assert "node_exited" in kinds
    assert "output" not in kinds


def test_a_started_run_is_waited_for_attached_to_and_stopped(
    cluster: Target, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    runs.start(HERE, ready(tmp_path, f"until test -e {go}; do sleep 0.1; done"))
    assert not runs.wait(HERE, "job", timeout_s=0).is_over
    started = runs.find_started(HERE, known.newest_run(HERE))
    go.touch()
    assert runs.attach(HERE, started).exit_code == 0
    assert runs.wait(HERE, "job").status == "done"
    runs.start(HERE, ready(tmp_path, "sleep 1000"))
    assert runs.stop(HERE, "job").result.status == "stopped"


def test_a_run_that_loses_no_node_imports_neither_boto3_asyncssh_nor_pulumi() -> None:
    program = (
        "import sys, cli\n"
        "from operations import prepared_run, runs\n"
        "prepared_run.prepare, runs.make_ready, runs.follow\n"
        "print({'boto3', 'botocore', 'asyncssh', 'pulumi'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=HOME, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
