"""The runs of a team in `gpuctl ps`: those of all machines that share a bucket."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cli.output import Output
from config.errors import CloudError
from config.target import Target
from engine.record.history import History
from lab.buckets import make_bucket
from operations.chosen_target import ChosenTarget
from operations.shared_runs import share_runs
from tests.engine.conftest import make_plan
from tests.labs import KEY

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Member(ChosenTarget):
    """One of the team, whose machine has a state folder of its own in the tests' region."""

    there: Target | None = None

    def remembered(self) -> Target:
        """Return the region of the tests."""
        assert self.there is not None
        return self.there


def member(name: str, here: Target, bucket: str = "runs") -> Member:
    there = replace(here, state=here.state / name, backend=f"s3://{bucket}")
    return Member(backend=f"s3://{bucket}", there=there)


def runs(here: ChosenTarget) -> dict[str, str]:
    with History(here.remembered().runs) as history:
        return {run.run_id: run.status for run in history.runs()}


def test_a_colleague_sees_a_run_and_its_end(
    target: Target,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert target.endpoint is not None
    make_bucket("runs", target.endpoint, KEY)
    anna, ben = (member(name, target) for name in ("anna", "ben"))
    plan = make_plan()
    with History(anna.remembered().runs) as history:
        history.begin(plan)
    share_runs(anna, Output().progress())
    share_runs(ben, Output().progress())
    assert runs(ben) == {plan.run_id: "running"}

    with History(anna.remembered().runs) as history:
        history.mark_lost(plan.run_id, "its head is gone")
    share_runs(anna, Output().progress())
    share_runs(ben, Output().progress())
    share_runs(anna, Output().progress())
    assert runs(ben) == {plan.run_id: "failed"} == runs(anna)
    with History(ben.remembered().runs) as history:
        run = history.find(plan.run_id)
    assert (run.reason, run.exit_code, run.cluster) == ("its head is gone", 125, plan.cluster)
    assert capsys.readouterr().err == ""


def test_run_can_be_attached_to_although_the_journals_of_others_are_not_shared(
    target: Target, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert target.endpoint is not None
    make_bucket("begins", target.endpoint, KEY)
    anna, ben = (member(name, target, "begins") for name in ("anna", "ben"))

    def refuse(*_: object) -> None:
        raise CloudError("AWS cannot be reached", "try again")

    monkeypatch.setattr("operations.shared_runs.share_journals", refuse)
    plan = make_plan()
    with History(anna.remembered().runs) as history:
        history.begin(plan)
    share_runs(anna, Output().progress())
    assert "AWS cannot be reached" in capsys.readouterr().err
    monkeypatch.undo()
    share_runs(ben, Output().progress())
    assert runs(ben) == {plan.run_id: "running"}


def test_a_bucket_that_cannot_be_read_is_a_warning(
    target: Target,
    capsys: pytest.CaptureFixture[str],
) -> None:
    away = replace(target, endpoint="http://127.0.0.1:9")
    share_runs(member("anna", away), Output().progress())
    assert capsys.readouterr().err.startswith(
        "gpuctl: warning: the runs of others are not known: the shared state in s3://runs cannot"
        " be used: AWS cannot be reached"
    )


def test_without_a_bucket_nobody_is_asked(tmp_path: Path) -> None:
    share_runs(ChosenTarget(backend=f"file://{tmp_path}"), Output().progress())
    assert list(tmp_path.iterdir()) == []
