"""The journals of a team: who has a run's log, metrics and tables once its cluster is gone."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from config.target import Target
from engine.agent.judge.output_reader import OutputReader
from engine.contract.event import to_line
from engine.contract.head_events import RunFinished
from engine.contract.worker_events import Output
from engine.record.history import History, RunRecord
from engine.record.journal_copy import (
    JournalCopy,
    evidence_folder,
    samples_path,
    write_evidence,
)
from engine.record.run_context import Setting
from lab.buckets import make_bucket
from provision.aws.objects import Objects
from tests.engine.conftest import make_plan
from tests.infra.region import CREDENTIALS
from tests.labs import KEY

pytestmark = pytest.mark.slow

RUN = make_plan().run_id
ROW = "8 2 float sum -1 45.82 0.10 0.20 0 38.17 0.30 0.40 0"
SETTING = Setting(
    type="task", region="us-east-1", zone="us-east-1a", instance_type="c6i.large", is_spot=False
)
EVENTS = (
    Output(time=1, rank=0, stream="stdout", text="begins", ends_line=True),
    Output(time=2, rank=1, stream="stdout", text=ROW, ends_line=True),
    RunFinished(time=3, status="done", exit_code=0, first_failed_rank=None, reason=""),
)


class Team:
    """People with a state folder each and one bucket; each call is a gpuctl command of one."""

    def __init__(self, folder: Path, there: Target, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, monkeypatch
        assert there.endpoint is not None
        name = folder.name.replace("_", "-")[:60]
        make_bucket(name, there.endpoint, KEY)
        self.url = f"s3://{name}"
        self.backend = f"{self.url}?region=us-east-1&endpoint={there.endpoint}"
        self.objects = self._objects(there)

    def _objects(self, there: Target) -> Objects:
        target = Target(
            "aws", "us-east-1", self._folder, environment=CREDENTIALS, backend=self.backend
        )
        assert target.bucket is not None
        return Objects(target, target.bucket)

    def runs(self, person: str) -> Path:
        return self._folder / person / "gpuctl/aws/runs"

    def __call__(self, person: str, *words: str, backend: str | None = None) -> Result:
        for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            self._patch.setenv(name, str(self._folder / person))
        for name, value in CREDENTIALS.items():
            self._patch.setenv(name, value)
        return CliRunner().invoke(app, ["--backend", backend or self.backend, *words])

    def find(self, person: str) -> RunRecord:
        with History(self.runs(person)) as history:
            return history.find(RUN)


@pytest.fixture
def team(tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch) -> Team:
    return Team(tmp_path, target, monkeypatch)


def follow(runs: Path, *, to: int = len(EVENTS)) -> None:
    """What a client leaves that followed the run up to this event, with metrics and evidence."""
    with History(runs) as history:
        history.begin(make_plan(), SETTING)
    copy, head = JournalCopy(runs, RUN), OutputReader(make_plan())
    for event in EVENTS[:to]:
        for recorded in head.read(event):
            copy.append(to_line(recorded))
    copy.close()
    with gzip.open(samples_path(runs, RUN), "wb") as file:
        file.write(b"{}\n")
    write_evidence(evidence_folder(runs, RUN), "node1", "ping", "no answer")


def finish(runs: Path, finished: Callable[[History], None]) -> None:
    with History(runs) as history:
        finished(history)


def lost(history: History) -> None:
    history.mark_lost(RUN, "its head is gone")


def done(history: History) -> None:
    run = history.find(RUN)
    over = {"status": "done", "exit_code": 0, "ended": run.started}
    history.adopt(run.model_copy(update=over))


@pytest.fixture
def ended(team: Team) -> Team:
    """Anna's run has ended, and Anna has listed her runs."""
    follow(team.runs("anna"))
    finish(team.runs("anna"), done)
    assert team("anna", "ps").exit_code == 0
    return team


FETCHED = f"gpuctl: fetching the log of run {RUN} from "


def test_a_colleague_prints_the_log_of_a_run_that_is_over(ended: Team) -> None:
    printed = ended("ben", "logs", "job")
    assert printed.stdout == f"[node0] begins\n[node1] {ROW}\n"
    assert printed.stderr == f"{FETCHED}{ended.url}\n"
    again = ended("ben", "logs", "job")
    assert (again.stdout, again.stderr) == (printed.stdout, "")
    there, here = ended.runs("anna") / RUN, ended.runs("ben") / RUN
    names = ["evidence/node1/ping.txt", "journal.jsonl", "metrics.jsonl.gz"]
    assert sorted(str(one.relative_to(here)) for one in here.rglob("*.*")) == names
    for name in names:
        assert (here / name).read_bytes() == (there / name).read_bytes()


def test_a_colleague_has_the_tables_the_setting_and_the_report(ended: Team) -> None:
    found = json.loads(ended("ben", "results", RUN, "--json").stdout)
    assert found["tables"][0]["rows"][0]["in_place"]["busbw"] == 0.4
    with History(ended.runs("ben")) as history:
        assert history.setting(RUN) == SETTING


def test_a_log_that_ends_early_is_replaced(ended: Team) -> None:
    follow(ended.runs("ben"), to=1)
    printed = ended("ben", "logs", RUN)
    assert printed.stdout == f"[node0] begins\n[node1] {ROW}\n"
    assert ended.find("ben").status == "done"


def test_a_log_without_the_end_is_not_shared_but_that_of_a_lost_run(team: Team) -> None:
    follow(team.runs("ben"), to=1)
    finish(team.runs("ben"), done)
    team("ben", "ps")
    prefix = f"gpuctl/journals/{RUN}/"
    assert team.objects.keys("gpuctl/journals/") == []
    follow(team.runs("anna"), to=2)
    finish(team.runs("anna"), lost)
    team("anna", "ps")
    assert team.objects.keys("gpuctl/journals/") == [
        f"{prefix}evidence/node1/ping.txt",
        f"{prefix}journal.jsonl",
        f"{prefix}metrics.jsonl.gz",
        f"{prefix}setting.json",
    ]


def test_a_name_that_leads_out_of_the_folder_is_not_taken(ended: Team) -> None:
    for name in ("../stranger", "/tmp/stranger", ".hidden", "evidence/../../stranger"):
        ended.objects.write(f"gpuctl/journals/{RUN}/{name}", "text", None)
    assert ended("ben", "logs", RUN).exit_code == 0
    assert list(ended.runs("ben").parent.rglob("*stranger*")) == []
    assert not (ended.runs("ben") / RUN / ".hidden").exists()


def test_files_without_the_journal_are_not_whole(ended: Team) -> None:
    ended.objects.remove(f"gpuctl/journals/{RUN}/journal.jsonl")
    refused = ended("ben", "logs", RUN)
    assert str(refused.exception).startswith(f"the logs of run {RUN} are not kept any more")
    assert not (ended.runs("ben") / RUN).exists()
    ended("anna", "ps")  # who still has it writes it again
    assert ended("ben", "logs", RUN).stdout == f"[node0] begins\n[node1] {ROW}\n"


def test_a_bucket_that_does_not_answer_is_a_warning(ended: Team) -> None:
    ended("ben", "ps")
    away = f"{ended.url}?region=us-east-1&endpoint=http://127.0.0.1:9"
    refused = ended("ben", "logs", RUN, backend=away)
    assert refused.stderr.startswith(
        f"gpuctl: warning: the log of run {RUN} did not come from the bucket: the shared state in"
        f" {ended.url} cannot be used: AWS cannot be reached"
    )
    assert str(refused.exception).startswith(f"the logs of run {RUN} are not kept any more")
