"""`gpuctl run` up to the engine: what it hands over, and what it says before."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import cli.run
import engine.session
from cli.main import app
from cli.session import Session
from config.errors import InputError
from config.target import Target
from engine.plan import LaunchPlan
from engine.result import RunResult
from nodes.inventory import Inventory
from tests.engine.conftest import make_inventory

SECRET = "type: task\nname: job\ncommands: [x]\nenv: {TOKEN: {secret: MY_TOKEN}}\n"

Handed = list[tuple[LaunchPlan, Mapping[str, str]]]


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Handed:
    """What the engine was given, on a cluster of two nodes."""
    calls: Handed = []

    async def run(
        plan: LaunchPlan, there: Inventory, runs: Path, on_event: object, secrets: Mapping[str, str]
    ) -> RunResult:
        calls.append((plan, secrets))
        now = datetime.now(UTC)
        how: dict[str, Any] = {"status": "done", "exit_code": 0, "first_failed_rank": None}
        how |= {"first_failed_node": None, "reason": "", "last_lines": ()}
        return RunResult(run_id=plan.run_id, started=now, ended=now, **how)

    monkeypatch.setattr(engine.session, "run", run)
    monkeypatch.setattr(cli.run, "_inventory", lambda here, name: make_inventory(2))
    target = Target("aws", "us-east-1", tmp_path)
    monkeypatch.setattr(Session, "cluster_target", lambda here, name: target)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return calls


@pytest.fixture
def gpuctl_run(tmp_path: Path) -> Callable[..., Result]:
    def call(text: str, *options: str) -> Result:
        file = tmp_path / "run.yaml"
        file.write_text(text)
        before = [option for option in options if option == "--lab"]
        after = [option for option in options if option != "--lab"]
        return CliRunner().invoke(app, [*before, "run", str(file), *after])

    return call


def test_secrets_are_looked_up_and_handed_over(
    handed: Handed, gpuctl_run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")
    done = gpuctl_run(SECRET)
    assert done.exit_code == 0
    ((plan, secrets),) = handed
    assert secrets == {"MY_TOKEN": "hunter2-hunter2"}
    assert "hunter2" not in plan.model_dump_json()


def test_a_secret_that_is_nowhere_ends_it_before_anything_runs(
    handed: Handed, gpuctl_run: Callable[..., Result]
) -> None:
    done = gpuctl_run(SECRET)
    assert isinstance(done.exception, InputError)
    assert "secret MY_TOKEN" in str(done.exception)
    assert handed == []


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_dry_run_shows_the_secrets_name_and_looks_nothing_up(
    handed: Handed, gpuctl_run: Callable[..., Result], options: tuple[str, ...]
) -> None:
    done = gpuctl_run(SECRET, "--dry-run", *options)
    assert done.exit_code == 0
    assert "MY_TOKEN" in done.stdout
    assert handed == []


def test_warnings_of_the_plan_are_on_stderr(
    handed: Handed, gpuctl_run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    import engine.plan

    plan = engine.plan.launch_plan

    def with_warning(*arguments: Any) -> LaunchPlan:
        return plan(*arguments).model_copy(update={"warnings": ("NCCL_X does harm", "so does Y")})

    monkeypatch.setattr(engine.plan, "launch_plan", with_warning)
    done = gpuctl_run("type: task\nname: job\ncommands: [x]\n", "--dry-run", "--json")
    assert done.stderr == "gpuctl: warning: NCCL_X does harm\ngpuctl: warning: so does Y\n"


@pytest.mark.parametrize("lab", ["", "--lab"])
def test_how_to_reach_rays_dashboard(
    handed: Handed, gpuctl_run: Callable[..., Result], lab: str
) -> None:
    done = gpuctl_run("type: ray\nname: job\nnodes: 2\ncommands: [x]\n", lab or "--cluster=demo")
    assert done.stdout.splitlines()[0] == (
        "-- dashboard http://10.213.1.10:8265:"
        f" `gpuctl {lab + ' ' if lab else ''}ssh demo node0 -- -N -L 8265:10.213.1.10:8265`,"
        " then open http://localhost:8265"
    )
