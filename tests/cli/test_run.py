"""`gpuctl run` from the file to the end of the job: agents are real, nodes are this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from cli.run import _dashboard
from cli.session import Session
from config.errors import InputError
from config.run import Ray
from config.target import Target
from engine.history import History
from engine.plan import LaunchPlan, launch_plan
from lab.places import Places
from tests.cli.conftest import remember
from tests.engine.conftest import make_inventory
from tests.engine.test_session import (
    LocalConnections,
    connections,  # noqa: F401  a fixture
    on_this_machine,
)

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
    assert {"[0] 0 of 2: ***, 15 letters", "[1] 1 of 2: ***, 15 letters"} <= set(
        done.stdout.splitlines()
    )
    assert "hunter2" not in done.output
    assert runs(cluster) == 1


def test_a_secret_that_is_nowhere_ends_it_before_anything_runs(
    cluster: Target, gpuctl_run: Callable[..., Result]
) -> None:
    done = gpuctl_run(SECRET)
    assert isinstance(done.exception, InputError)
    assert "secret MY_TOKEN" in str(done.exception)
    assert runs(cluster) == 0


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_dry_run_shows_the_secrets_name_and_looks_nothing_up(
    cluster: Target, gpuctl_run: Callable[..., Result], options: tuple[str, ...]
) -> None:
    done = gpuctl_run(SECRET, "--dry-run", *options)
    assert done.exit_code == 0
    assert "MY_TOKEN" in done.stdout
    assert runs(cluster) == 0


def test_warnings_of_the_plan_are_on_stderr(
    cluster: Target, gpuctl_run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    import engine.plan

    plan = engine.plan.launch_plan

    def with_warning(*arguments: Any) -> LaunchPlan:
        return plan(*arguments).model_copy(update={"warnings": ("NCCL_X does harm", "so does Y")})

    monkeypatch.setattr(engine.plan, "launch_plan", with_warning)
    done = gpuctl_run("type: task\nname: job\ncommands: [x]\n", "--dry-run", "--json")
    assert done.stderr == "gpuctl: warning: NCCL_X does harm\ngpuctl: warning: so does Y\n"


def test_the_jobs_exit_code_is_the_commands(
    cluster: Target, gpuctl_run: Callable[..., Result]
) -> None:
    done = gpuctl_run("type: task\nname: job\nnodes: 2\ncommands: [exit 7]\n")
    assert done.exit_code == 7
    assert ", exit code 7: node" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("lab", "options"), [(None, ""), (Places("default"), "--lab "), (Places("b"), "--lab-name b ")]
)
def test_how_to_reach_rays_dashboard(lab: Places | None, options: str) -> None:
    run = Ray.model_validate({"type": "ray", "name": "job", "nodes": 2, "commands": ("x",)})
    plan = launch_plan(run, make_inventory(2), "job-000001")
    assert _dashboard(Session(lab=lab), plan) == (
        "-- dashboard http://10.213.1.10:8265:"
        f" `gpuctl {options}ssh demo node0 -- -N -L 8265:10.213.1.10:8265`,"
        " then open http://localhost:8265"
    )


def test_the_dashboard_is_said_before_the_job_begins(
    cluster: Target, gpuctl_run: Callable[..., Result]
) -> None:
    done = gpuctl_run("type: ray\nname: job\nnodes: 2\ncommands: [x]\n")
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith("-- dashboard http://127.0.0.10:8265: `gpuctl ssh demo node0 -- ")
    assert second.startswith("-- run job-")
