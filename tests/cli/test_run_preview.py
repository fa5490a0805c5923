"""`gpuctl run --dry-run` before there is a cluster: what would run, without credentials."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import gpuctl
from cli.main import app
from config.target import Target
from tests.cli.conftest import remember
from tests.engine.conftest import make_inventory

TRAIN = "type: torchrun\nname: train\nnodes: 2\ncommands: [train.py]\n"
CLUSTER = "name: trainer\nnodes: 4\ninstance_type: p5.48xlarge\nregion: us-west-2\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, remembered: Target, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with no cluster, no region and no credentials."""
    del remembered
    for name in ("AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def preview(folder: Path) -> Callable[..., Result]:
    def call(text: str, *options: str) -> Result:
        (folder / "run.yaml").write_text(text)
        return CliRunner().invoke(app, ["run", "run.yaml", "--dry-run", *options])

    return call


def test_a_run_is_planned_for_a_cluster_file(folder: Path, preview: Callable[..., Result]) -> None:
    (folder / "cluster.yaml").write_text(CLUSTER)
    done = preview(TRAIN, "--cluster", "cluster.yaml", "--json")
    assert done.exit_code == 0, done.exception
    assert done.stderr == (
        "gpuctl: warning: the run is planned for cluster trainer of cluster.yaml, 4 x p5.48xlarge"
        " at $220.16 per hour on demand; addresses and devices are placeholders\n"
        "gpuctl: warning: run train needs PyTorch, and the nodes of cluster trainer do not have it:"
        " name a container `image` with it in the run file, or install it by `setup.commands` of"
        " the cluster file\n"
    )
    plan = json.loads(done.stdout)
    assert (plan["cluster"], plan["network"]["preset"]) == ("trainer", "efa")
    assert [(node["private_ip"], node["processes"]) for node in plan["nodes"]] == [
        ("198.18.0.1", 8),
        ("198.18.0.2", 8),
    ]
    assert list(folder.glob("home/**/*.json")) == [], "nothing is recorded"


def test_a_run_that_needs_more_nodes_than_the_cluster_file_has_is_an_error(
    folder: Path, preview: Callable[..., Result]
) -> None:
    (folder / "cluster.yaml").write_text(CLUSTER)
    refused = preview(TRAIN, "--cluster", "cluster.yaml", "--nodes", "5")
    assert str(refused.exception) == (
        "run train wants 5 nodes, cluster trainer has 4; use `--nodes 4`, or bring up a larger"
        " cluster"
    )


def test_without_a_cluster_a_run_is_planned_for_the_cheapest_nodes_that_fit(
    preview: Callable[..., Result],
) -> None:
    done = preview(
        "type: task\nname: job\nnodes: 2\ncommands: [x]\nrequires: {gpu: [H100], gpus: 8}\n"
    )
    assert done.exit_code == 0, done.exception
    assert done.stderr == (
        "gpuctl: warning: there is no cluster: the run is planned for 2 x p5.48xlarge at $110.08"
        " per hour on demand, the cheapest that fits; addresses and devices are placeholders\n"
    )


@pytest.mark.parametrize(
    ("needs", "nodes"),
    [
        ("", "2 nodes with no GPUs"),
        ("procs_per_node: 4\n", "2 nodes with 4 GPUs"),
        (
            "requires: {memory: 500GB.., disk: 900GB.., regions: [eu-west-1]}\n",
            "2 nodes with no GPUs",
        ),
    ],
)
def test_a_run_that_names_no_gpu_is_planned_for_nodes_of_no_type(
    preview: Callable[..., Result], needs: str, nodes: str
) -> None:
    done = preview(f"{TRAIN}{needs}")
    assert done.exit_code == 0, done.exception
    assert done.stderr.splitlines()[0] == (
        f"gpuctl: warning: there is no cluster: the run is planned for {nodes}, because its file"
        " names no type of GPU (`requires`); --cluster FILE names a cluster file; addresses and"
        " devices are placeholders"
    )
    assert " on cluster unknown: 2 nodes, " in done.stdout


def test_a_cluster_that_exists_is_taken_before_nodes_that_do_not(
    remembered: Target, preview: Callable[..., Result]
) -> None:
    remember(make_inventory(2), remembered)
    done = preview(TRAIN)
    assert (done.exit_code, done.stderr) == (0, ""), done.exception
    assert " on cluster demo: 2 nodes, " in done.stdout


def test_only_a_dry_run_takes_a_cluster_file(folder: Path) -> None:
    (folder / "run.yaml").write_text(TRAIN)
    refused = CliRunner().invoke(app, ["run", "run.yaml", "--cluster", "my/cluster.yaml"])
    assert str(refused.exception) == (
        "--cluster is my/cluster.yaml, which is not the name of a cluster; `gpuctl up"
        " my/cluster.yaml` creates it; with --dry-run the run is planned for the file"
    )


def test_python_plans_a_run_for_a_cluster_file(folder: Path) -> None:
    (folder / "run.yaml").write_text(TRAIN)
    (folder / "cluster.yaml").write_text(CLUSTER)
    prepared = gpuctl.plan_run("run.yaml", cluster=folder / "cluster.yaml")
    assert (prepared.plan.cluster, len(prepared.plan.nodes)) == ("trainer", 2)
    assert prepared.warnings[0].startswith("the run is planned for cluster trainer of ")
