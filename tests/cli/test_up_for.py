"""`gpuctl up --for`: the cluster file that a run gets proposed, and what is done with it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from config.catalogue.instance_types import catalogue
from config.cluster.cluster_file import Cluster
from config.errors import InputError
from config.loading.load import check, load_cluster, load_run, unchecked_requirements
from config.loading.overrides import NO_SUBSTITUTIONS
from config.target import Target
from engine.plan.launch_plan import launch_plan
from operations.chosen_target import ChosenTarget
from operations.proposal import no_cluster_hint, propose
from tests import golden
from tests.engine.conftest import make_inventory

HERE = Path(__file__).parent
RUN_FILES = sorted(path.name for path in (HERE / "proposals").iterdir())
TRAIN = "type: task\nname: train\nnodes: 2\ncommands: [train]\n"


def gpuctl(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, requires: str = "{gpu: [H100], gpus: 8}") -> str:
    (folder / "train.yaml").write_text(f"{TRAIN}requires: {requires}\n")
    return "train.yaml"


@pytest.mark.parametrize("name", RUN_FILES)
def test_golden(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE / "proposals")
    done = gpuctl("up", "--for", name)
    assert (done.exit_code, done.stderr) == (0, "")
    golden.check(HERE / "golden" / "proposals" / f"{name}.txt", done.stdout)
    file = tmp_path / "cluster.yaml"
    file.write_text(done.stdout)
    assert check(file) == ()
    _run_fits(Path(name), load_cluster(file))


def _run_fits(run_file: Path, cluster: Cluster) -> None:
    """Assert that `run` takes the run to such a cluster."""
    run = load_run(run_file)
    if run.requires is None:
        run = run.model_copy(
            update={"requires": unchecked_requirements(run_file, NO_SUBSTITUTIONS)}
        )
    entry = catalogue().get(cluster.instance_type)
    inventory = make_inventory(cluster.nodes, entry.gpu.count if entry else 0)
    known = {
        "cluster": cluster.name,
        "instance_type": cluster.instance_type,
        "region": cluster.region or "us-east-1",
        "zone": next(iter(cluster.capacity.zones), "us-east-1a"),
        "is_spot": cluster.capacity.type == "spot",
        "root_gib": cluster.storage.root.gib,
    }
    launch_plan(run, inventory.model_copy(update=known), "job-000001")


@pytest.mark.parametrize(
    ("requires", "message"),
    [
        (
            "{cpus: 8.., gpus: 0}",
            "run train does not say which nodes it needs: it names no GPU and no instance type;"
            " write `requires: {gpu: [H100], gpus: 8}` into the run file (`resources` in a file of"
            " dstack, SkyPilot or Kubernetes), or write a cluster file",
        ),
        (
            "{gpus: 64}",
            "no instance type fits run train: '64 GPUs on a node' excludes all, p4d.24xlarge"
            " (8 GPUs), p4de.24xlarge (8 GPUs), p5.4xlarge (1 GPU) and 33 more; change it in"
            " the run file",
        ),
        (
            "{gpu: [H200], max_price: 20}",
            "no instance type fits run train: 'nodes of at most $20/h' excludes the last,"
            " p5e.48xlarge (no known price), p5en.48xlarge at $63.30/h (us-east-1, 2026-07-28);"
            " change it in the run file",
        ),
        (
            "{gpu: [A10G], gpus: 8, memory: 2TB..}",
            "no instance type fits run train: '2TB.. of memory of a node' excludes the last,"
            " g5.8xlarge (128GB), g5.12xlarge (192GB), g5.16xlarge (256GB) and 2 more; change it in"
            " the run file",
        ),
        (
            "{instance_types: [p5.48xlarge], efa: 33..}",
            "no instance type fits run train: '33.. EFA interfaces of a node' excludes all,"
            " p5.48xlarge (32); change it in the run file",
        ),
        (
            "{instance_types: [Standard_ND96]}",
            "run train names no instance type of AWS; name one, such as p5.48xlarge",
        ),
        (
            "{gpu: [H100], regions: [eu-west-1], zones: [us-west-2-lax-1a]}",
            "run train asks for eu-west-1, and its zones are in other regions; change one of the"
            " two in the run file",
        ),
        (
            "{instance_types: [p5.48xlarge], disk: 100TB..}",
            "no instance type fits run train: '100TB.. of disk on a node' excludes all,"
            " p5.48xlarge (30400GB); change it in the run file",
        ),
    ],
)
def test_no_cluster_is_proposed_for(folder: Path, requires: str, message: str) -> None:
    error = gpuctl("up", "--for", write(folder, requires)).exception
    assert isinstance(error, InputError)
    assert str(error) == message


def test_the_region_of_the_command_line(folder: Path) -> None:
    file = write(folder, "{gpu: [T4], zones: [us-west-2b, us-east-1a]}")
    done = gpuctl("up", "--for", file, "--region", "us-east-1", "--json")
    cluster = json.loads(done.stdout)["cluster"]
    assert (cluster["region"], cluster["capacity"]["zones"]) == ("us-east-1", ["us-east-1a"])
    error = gpuctl("up", "--for", file, "--region", "eu-west-1").exception
    assert str(error) == (
        "run train asks for us-west-2 or us-east-1, --region is eu-west-1; leave --region out, or"
        " change the run file"
    )


def test_json_has_the_cluster_its_price_and_what_else_fits(folder: Path) -> None:
    done = gpuctl("up", "--for", write(folder), "--json")
    assert json.loads(done.stdout) == {
        "cluster": {"name": "train", "nodes": 2, "instance_type": "p5.48xlarge"},
        "hourly_usd": pytest.approx(2 * 55.04 + 0.0208 + 0.045 + 2 * 0.005),
        "fit": [{"instance_type": "p5.48xlarge", "nodes_usd_h": 110.08}],
        "compared": 36,
        "excluded": {"GPUs H100": 34, "8 GPUs on a node": 23},
        "warnings": [],
    }


def test_a_run_file_puts_no_field_into_the_cluster_file(folder: Path) -> None:
    name = '"H100\\nsetup: {commands: [reboot]}\\u2028\\e"'
    file = write(folder, f"{{gpu: [{name}, T4]}}")
    fields = gpuctl("up", "--for", file, "--json")
    assert json.loads(fields.stdout)["cluster"].keys() == {"name", "nodes", "instance_type"}
    cluster = folder / "cluster.yaml"
    cluster.write_text(gpuctl("up", "--for", file).stdout)
    assert "# The file asks for GPUs H100 setup: {commands: [reboot]} ^[ or T4 (" in (
        cluster.read_text()
    )
    assert load_cluster(cluster).setup.commands == ()


class Planned(Exception):
    """The cluster of which `up` began to make a plan."""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def plan(cluster: Cluster, *_: Any, **__: Any) -> None:
        raise Planned(cluster)

    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr("provision.up.plan", plan)


@pytest.mark.usefixtures("planned")
def test_with_a_file_up_writes_it_and_goes_on(folder: Path) -> None:
    file = write(folder)
    done = gpuctl("up", "cluster.yaml", "--for", file)
    assert isinstance(done.exception, Planned)
    assert done.exception.args == (load_cluster(folder / "cluster.yaml"),)
    printed = gpuctl("up", "--for", file).stdout
    assert (folder / "cluster.yaml").read_text() == printed
    assert done.stdout == f"{printed}-- written to cluster.yaml\n"


@pytest.mark.usefixtures("planned")
def test_no_cluster_file_is_overwritten(folder: Path) -> None:
    (folder / "cluster.yaml").write_text("mine")
    error = gpuctl("up", "cluster.yaml", "--for", write(folder), "--yes").exception
    assert str(error) == (
        "cluster.yaml exists, and --for writes a new cluster file; name a new file, or bring up"
        " what it describes: `gpuctl up cluster.yaml`"
    )
    assert (folder / "cluster.yaml").read_text() == "mine"
    error = gpuctl("up", "none/cluster.yaml", "--for", "train.yaml").exception
    assert str(error) == (
        "none/cluster.yaml cannot be written: No such file or directory; name a file in a folder"
        " of yours"
    )


@pytest.mark.usefixtures("planned")
def test_yes_needs_a_cluster_file(folder: Path) -> None:
    error = gpuctl("up", "--for", write(folder), "--yes").exception
    assert str(error) == (
        "--yes needs a name for the cluster file that --for proposes; `gpuctl up cluster.yaml --for"
        " train.yaml --yes`"
    )
    done = gpuctl("up", "--yes")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, "Error: Missing argument 'FILE'.")


def test_run_without_a_cluster_names_the_command(remembered: Target, folder: Path) -> None:
    error = gpuctl("run", write(folder)).exception
    assert str(error) == (
        "there is no cluster; `gpuctl up --for train.yaml` proposes one that fits"
    )
    error = gpuctl("run", write(folder, "{cpus: 8..}")).exception
    assert str(error) == "there is no cluster; make one with `gpuctl up FILE`"


def test_the_hint_knows_manifests_and_reads_no_pipe(tmp_path: Path) -> None:
    job = HERE / "proposals" / "mpijob.yaml"
    run = load_run(job)
    assert no_cluster_hint(run, job) == f"`gpuctl up --for {job}` proposes one that fits"
    assert no_cluster_hint(run, tmp_path / "pipe") == "make one with `gpuctl up FILE`"


def test_warnings_about_the_run_file_are_reported(
    tmp_path: Path,
) -> None:
    file = tmp_path / "t.dstack.yml"
    file.write_text(TRAIN + "resources: {gpu: T4}\nnods: 2\n")
    warnings: list[str] = []
    propose(ChosenTarget(), file, warn=warnings.append)
    assert ["W207 unknown key 'nods'" in warning for warning in warnings] == [True]
