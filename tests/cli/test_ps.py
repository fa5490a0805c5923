"""`gpuctl ps --prune`: logs go by age and size, results and runs that nobody has read stay."""

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner, Result

from cli.main import app
from config.errors import InputError, RunError
from config.quantities import size
from config.target import Target
from engine.agent.journal.run_folders import StoredRun
from engine.contract.event import to_line
from engine.contract.worker_events import Output
from engine.plan.launch_plan import launch_plan
from engine.record import journal_copy
from engine.record.history import History
from engine.record.journal_copy import (
    JournalCopy,
    remove,
    runs_over_budget,
    stored_runs,
    write_evidence,
)
from engine.record.outputs_folder import choose_outputs, outputs_folder
from engine.record.result import RunResult
from provision.state.store import ClusterStore
from tests.aws_calls import Answer, ApiCall
from tests.cli.conftest import remember
from tests.engine.conftest import make_inventory, make_run
from tests.engine.record.test_history import table
from tests.provision.test_record import a_record

ACCOUNT = a_record().account
LINE = to_line(Output(time=1, rank=0, stream="stdout", text="x" * 5000, ends_line=True))


def earlier(target: Target, name: str, days: float, lines: int = 1) -> str:
    """The id of a run that ended so many days ago, with its logs."""
    run_id = f"{name}-000001"
    ended = datetime.now(UTC) - timedelta(days=days)
    plan = launch_plan(make_run(name=name), make_inventory(2), run_id)
    with History(target.runs) as history:
        history.begin(plan)
        history.keep_table(run_id, 0, table(8, 16, 32))
        history.finish(
            RunResult(
                run_id=run_id,
                status="done",
                exit_code=0,
                first_failed_rank=None,
                first_failed_node=None,
                reason="all nodes are done",
                last_lines=(),
                started=ended,
                ended=ended,
            )
        )
    record = JournalCopy(target.runs, run_id)
    for _ in range(lines):
        record.append(LINE)
    record.close()
    return run_id


def alive(target: Target, head_id: str = "", on_stop: str = "keep") -> str:
    plan = launch_plan(make_run(name="alive", on_stop=on_stop), make_inventory(2), "alive-000001")
    with History(target.runs) as history:
        history.begin(plan, head_id=head_id)
    JournalCopy(target.runs, plan.run_id).close()
    return plan.run_id


def prune(*options: str) -> Result:
    return CliRunner().invoke(app, ["ps", "--prune", *options])


def logs_of(target: Target) -> list[str]:
    return sorted(path.parent.name for path in target.runs.glob("*/journal.jsonl"))


def test_what_is_too_old_goes_and_its_results_stay(remembered: Target) -> None:
    old, young, lives = (
        earlier(remembered, "old", 31),
        earlier(remembered, "new", 29),
        alive(remembered),
    )
    write_evidence(remembered.runs / old / "evidence", "node1", "ssh", "gone")
    done = prune("--yes")
    freed = done.stdout.split()[1]
    assert done.stdout.splitlines() == [
        f"old-000001                   {freed:>5} KiB",
        f"The logs of 1 run are removed, {freed} KiB freed.",
    ]
    assert logs_of(remembered) == sorted([lives, young])
    assert not (remembered.runs / old).exists()
    for option in ((), ("-f",)):
        logs = CliRunner().invoke(app, ["logs", old, *option])
        assert isinstance(logs.exception, InputError)
        assert str(logs.exception) == (
            "the logs of run old-000001 are not kept any more;"
            " 30 days and 10 GiB are kept; `gpuctl results old-000001` shows its results"
        )
    results = CliRunner().invoke(app, ["results", old, "--json"])
    assert [len(one["rows"]) for one in json.loads(results.stdout)["tables"]] == [3]
    assert CliRunner().invoke(app, ["ps"]).stdout.count("-000001") == 3


class Heads:
    """The heads of clusters, as AWS and the caller's credentials show them."""

    def __init__(self) -> None:
        self.end, self.account = "is terminated: Server.SpotInstanceTermination", ACCOUNT
        self.asked: list[str] = []

    def answer(self, call: ApiCall) -> Any:
        if call.operation == "GetCallerIdentity":
            if not self.account:
                raise ClientError({"Error": {"Code": "ExpiredToken"}}, call.operation)
            return {"Account": self.account, "Arn": "arn:aws:iam::123456789012:user/ann"}
        assert call.operation == "DescribeInstances"
        (head,) = re.findall(r"i-\w+", str(call.request))
        self.asked.append(head)
        _, state, *reason = self.end.split(maxsplit=2) if self.end else ("", "running")
        instance = {"InstanceId": head, "State": {"Name": state.rstrip(":")}}
        because = {"StateReason": {"Message": " ".join(reason)}}
        return {"Reservations": [{"Instances": [instance | because]}]}


@pytest.fixture
def heads(signed_in: None, answer_calls: Callable[[Answer], None]) -> Heads:
    made = Heads()
    answer_calls(made.answer)
    return made


def test_a_run_whose_head_is_gone_is_shown_as_lost_with_its_cause(
    remembered: Target, heads: Heads
) -> None:
    remember(make_inventory(2), remembered)
    over, lives = earlier(remembered, "old", 1), alive(remembered)
    reason = f"node0 was lost: its machine i-1 {heads.end}"
    done = CliRunner().invoke(app, ["ps", "--json"])
    assert done.exception is None, done.exception
    found = {run["run_id"]: run for run in json.loads(done.stdout)}
    assert (found[lives]["status"], found[lives]["exit_code"]) == ("failed", 125)
    assert (found[lives]["reason"], found[over]["status"]) == (reason, "done")
    assert done.stderr == f"gpuctl: warning: run {lives}: {reason}\n"
    assert CliRunner().invoke(app, ["ps"]).stderr == ""
    assert heads.asked == ["i-1"]  # once: the run is over now


def made_again(target: Target) -> str:
    later = datetime.now(UTC) + timedelta(minutes=5)
    known = a_record().now("ready").model_copy(update={"created": later})
    ClusterStore(target).write(known)
    return f"its cluster was removed, and made again at {later:%Y-%m-%d %H:%M} UTC"


def removed(target: Target) -> str:
    ClusterStore(target).forget("demo")
    return "its cluster was removed"


def with_another_head(target: Target) -> str:
    head, *others = make_inventory(2).nodes
    head = head.model_copy(update={"instance_id": "i-new"})
    remember(make_inventory(2).model_copy(update={"nodes": (head, *others)}), target)
    return "node0 was lost: its machine i-1 was replaced by i-new"


def with_another_head_and_shared_storage(target: Target) -> str:
    reason = with_another_head(target)
    remember(ClusterStore(target).inventory("demo").model_copy(update={"shared": "/s"}), target)
    saved = "/s/gpuctl/saved/alive-000001"
    left = f"have left its log, metrics and outputs in {saved}"
    return f"{reason}; the run may have ended before, and {left}"


@pytest.mark.parametrize(
    ("change", "on_stop"),
    [
        (made_again, "keep"),
        (removed, "keep"),
        (with_another_head, "keep"),
        (with_another_head_and_shared_storage, "destroy"),
    ],
)
@pytest.mark.parametrize("command", ["ps", "wait"])
def test_a_run_whose_machines_are_not_its_clusters_any_more_is_lost(
    remembered: Target,
    heads: Heads,
    change: Callable[[Target], str],
    on_stop: str,
    command: str,
) -> None:
    """By whatever machine: the records may be shared. Nobody is asked."""
    remember(make_inventory(2), remembered)
    lives = alive(remembered, head_id="i-1", on_stop=on_stop)
    reason = change(remembered)
    done = CliRunner().invoke(app, [command, *([lives] if command == "wait" else ["--json"])])
    if command == "ps":
        assert done.stderr == f"gpuctl: warning: run {lives}: {reason}\n"
        (run,) = json.loads(done.stdout)
        assert (run["status"], run["exit_code"], run["reason"]) == ("failed", 125, reason)
    else:
        assert done.stdout == f"Run {lives}: failed, exit code 125: {reason}\n"
        assert done.exit_code == 125
    assert heads.asked == []


@pytest.mark.parametrize(
    ("account", "end"), [("999999999999", "is gone"), ("", "is gone"), (ACCOUNT, "")]
)
def test_without_an_answer_about_its_head_a_run_goes_on(
    remembered: Target, heads: Heads, account: str, end: str
) -> None:
    """Another account does not list the machine, which is no end of it."""
    heads.account, heads.end = account, end
    remember(make_inventory(2), remembered)
    alive(remembered)
    done = CliRunner().invoke(app, ["ps", "--json"])
    assert [run["status"] for run in json.loads(done.stdout)] == ["running"]
    assert (done.stderr, len(heads.asked)) == ("", int(account == ACCOUNT))


def test_the_oldest_go_until_the_rest_is_not_too_much() -> None:
    now = time.time()
    kept = [
        StoredRun(Path(name), 4 << 30, now - 86400 * days, True) for days, name in enumerate("abcd")
    ]
    assert [run.folder.name for run in runs_over_budget(kept)] == ["d", "c"]


def test_an_age_may_be_chosen(remembered: Target) -> None:
    earlier(remembered, "a", 8)
    young = earlier(remembered, "b", 6)
    assert prune("--older-than", "7d", "--yes").exit_code == 0
    assert logs_of(remembered) == [young]
    nothing = prune("--older-than", "7d")
    assert nothing.stdout.startswith("Nothing to remove: the logs of 1 run are kept, ")
    assert json.loads(prune("--json").stdout) == {"removed": [], "freed_bytes": 0}


def test_nothing_goes_before_the_person_agrees(remembered: Target) -> None:
    old = earlier(remembered, "old", 31)
    refused = prune()
    assert isinstance(refused.exception, InputError)
    assert "there is no terminal to ask on: Remove the logs of 1 run, " in str(refused.exception)
    assert "Their results stay.; add --yes if" in str(refused.exception)
    assert logs_of(remembered) == [old]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--yes"], "--older-than and --yes are for --prune alone; add --prune"),
        (["--older-than", "7d"], "--older-than and --yes are for --prune alone; add --prune"),
        (
            ["--prune", "--older-than", "week"],
            "--older-than is 'week': it must be a whole number (at most 6 digits) and a unit:"
            " s, m, h or d (30m, 8h); write 7d or 12h",
        ),
    ],
)
def test_options_that_make_no_sense(remembered: Target, options: list[str], complaint: str) -> None:
    refused = CliRunner().invoke(app, ["ps", *options])
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == complaint


def test_a_folder_that_stays_is_told(remembered: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    old = earlier(remembered, "old", 31)

    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(journal_copy, "shutil", SimpleNamespace(rmtree=refuse))
    with History(remembered.runs) as history, pytest.raises(RunError) as refused:
        remove(stored_runs(remembered.runs, history.runs()))
    path = remembered.runs / old
    assert (
        str(refused.value)
        == f"{path} cannot be removed: Permission denied; make the state folder writable"
    )


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 KiB"),
        (1, "1 KiB"),
        ((1 << 20) - 1, "1024 KiB"),
        (1 << 20, "1.0 MiB"),
        (3 << 29, "1.5 GiB"),
    ],
)
def test_sizes(amount: int, text: str) -> None:
    assert size(amount) == text


def test_outputs_stay_when_logs_are_removed(remembered: Target, tmp_path: Path) -> None:
    run_id = earlier(remembered, "old", 31)
    folder = remembered.runs / run_id
    choose_outputs(remembered.runs, run_id, tmp_path / "outputs")
    outputs = outputs_folder(remembered.runs, run_id)
    outputs.mkdir(parents=True)
    (outputs / "model").write_text("weights")
    with History(remembered.runs) as history:
        removed = journal_copy.runs_over_budget(stored_runs(remembered.runs, history.runs()))
        assert [run.folder for run in removed] == [folder]
        remove(removed)
        assert stored_runs(remembered.runs, history.runs()) == []
    assert (outputs / "model").read_text() == "weights"
