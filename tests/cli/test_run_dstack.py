"""`gpuctl run` with a task of dstack: the cluster, the comparison with it, and unknown keys."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from cli.main import app
from config.errors import InputError, InvalidFiles
from config.target import Target
from tests.cli.conftest import remember
from tests.engine.conftest import make_inventory

TASK = "type: task\nname: t\ncommands: [hostname]\n"


def run(folder: Path, text: str, *options: str) -> Result:
    file = folder / "t.dstack.yml"
    file.write_text(text)
    return CliRunner().invoke(app, ["run", str(file), "--dry-run", "--json", *options])


def test_the_fleet_of_the_file_is_the_cluster_of_that_name(
    remembered: Target, tmp_path: Path
) -> None:
    for name in ("demo", "mine"):
        remember(make_inventory(1).model_copy(update={"cluster": name}), remembered)
    assert str(run(tmp_path, TASK).exception) == (
        "there are several: demo, mine; name one with --cluster"
    )
    fleets = TASK + "fleets: [theirs, mine]\n"
    assert json.loads(run(tmp_path, fleets).stdout)["cluster"] == "mine"
    other = run(tmp_path, fleets, "--cluster", "demo")
    assert json.loads(other.stdout)["cluster"] == "demo"
    assert "the run file names theirs, mine; this run goes to cluster demo" in other.stderr


def test_nothing_runs_on_nodes_that_do_not_fit(remembered: Target, tmp_path: Path) -> None:
    remember(make_inventory(1), remembered)
    error = run(tmp_path, TASK + "resources: {gpu: H100:8}\n").exception
    assert isinstance(error, InputError)
    assert str(error) == (
        "run t asks for GPUs H100, cluster demo (p4d.24xlarge) has A100; run it on a cluster that"
        " has it, or change the run file"
    )


def test_unknown_keys_are_warnings_or_with_strict_errors(
    remembered: Target, tmp_path: Path
) -> None:
    remember(make_inventory(1), remembered)
    line = "4:1: {} unknown key 'nods': neither dstack nor gpuctl has it; did you mean 'nodes'?"
    lax = run(tmp_path, TASK + "nods: 2\n")
    assert lax.exit_code == 0
    assert line.format("W207") in lax.stderr
    strict = run(tmp_path, TASK + "nods: 2\n", "--strict").exception
    assert isinstance(strict, InvalidFiles)
    assert str(strict).endswith(line.format("E101"))


def test_validate_is_strict_too(tmp_path: Path) -> None:
    file = tmp_path / "t.dstack.yml"
    file.write_text(TASK + "nods: 2\n")
    assert CliRunner().invoke(app, ["validate", str(file)]).exit_code == 0
    answer = CliRunner().invoke(app, ["validate", "--strict", str(file)])
    assert isinstance(answer.exception, InvalidFiles)
