"""`gpuctl init`: files that work as they are, from three answers or options."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from config.loading.load import check, load_cluster, load_run
from engine.plan.launch_plan import launch_plan
from engine.plan.stand_in import stand_in
from operations.first_files import JOBS

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "gpuctl")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*words: str) -> Result:
    return CliRunner().invoke(app, ["init", *words])


def test_options_answer_every_question(folder: Path) -> None:
    done = init("--type", "nccl-tests", "--gpu", "h100", "--region", "us-west-2")
    assert (done.exit_code, done.stderr) == (0, "")
    assert (
        done.stdout
        == """\
cluster.yaml is written
run.yaml is written
Cost: $13.84 per hour (2 x p5.4xlarge $6.88, access to them $0.076; on-demand, gpuctl's list of\
 2026-07-28, us-east-1).
Rehearse on this machine, for nothing:
  gpuctl lab start
  gpuctl --lab up cluster.yaml
  gpuctl --lab run run.yaml
See what AWS would create, and its cost:
  gpuctl plan cluster.yaml
"""
    )
    cluster = load_cluster(folder / "cluster.yaml")
    assert (cluster.nodes, cluster.instance_type, cluster.region) == (2, "p5.4xlarge", "us-west-2")
    assert cluster.lifetime is not None
    assert cluster.lifetime.max == 8 * 3600


def test_the_next_commands_have_the_options_of_the_target(folder: Path) -> None:
    """The lab's for the rehearsal, the profile for AWS; the region is in the cluster file."""
    line = ("--type", "hello", "--gpu", "T4", "--region", "us-west-2", "--profile", "my team")
    steps = [
        step
        for step in init("a b", *line, "--lab-name", "second").stdout.splitlines()
        if step.startswith("  ")
    ]
    assert steps == [
        "  gpuctl --lab-name second lab start",
        "  gpuctl --lab-name second up 'a b/cluster.yaml'",
        "  gpuctl --lab-name second run 'a b/run.yaml'",
        "  gpuctl --profile 'my team' plan 'a b/cluster.yaml'",
    ]
    shown = init("second", *line, "--lab", "--backend", "s3://ours").stdout
    assert "  gpuctl lab start\n  gpuctl --lab --backend s3://ours up second/clus" in shown
    assert "  gpuctl --profile 'my team' --backend s3://ours plan second/cluster.yaml\n" in shown


@pytest.mark.parametrize("job", JOBS)
def test_the_files_of_each_job_are_valid_and_fit_each_other(folder: Path, job: str) -> None:
    done = init("first", "--type", job, "--gpu", "A100", "--region", "us-east-1")
    assert done.exit_code == 0, done.stderr
    files = [folder / "first" / name for name in ("cluster.yaml", "run.yaml")]
    assert [check(file) for file in files] == [(), ()]
    run, cluster = load_run(files[1]), load_cluster(files[0])
    assert run.name == cluster.name
    inventory = stand_in(cluster)
    assert inventory.nodes[0].software, "the software of these nodes is known"
    assert launch_plan(run, inventory, "job-000001").warnings == ()


def test_an_instance_type_is_taken_as_it_is(folder: Path) -> None:
    assert init("--type", "hello", "--gpu", "c6i.large", "--region", "eu-west-1").exit_code == 0
    assert load_cluster(folder / "cluster.yaml").instance_type == "c6i.large"


def test_a_run_file_gets_a_cluster_file_alone(folder: Path) -> None:
    text = "type: task\nname: train\nnodes: 4\ncommands: [x]\nrequires: {gpu: [H200]}\n"
    (folder / "train.yaml").write_text(text)
    done = init("--for", "train.yaml")
    assert done.exit_code == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["cluster.yaml", "train.yaml"]
    assert load_cluster(folder / "cluster.yaml").nodes == 4
    assert "  gpuctl --lab run train.yaml\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--type", "nccl-test", "--gpu", "H100"),
            "there is no first run 'nccl-test'; did you mean 'nccl-tests'?",
        ),
        (("--type", "mpi", "--gpu", "H10"), "no instance type has the GPU 'H10'"),
        (("--gpu", "H100"), "there is no terminal to ask on: What to run?; add --type"),
        (("--type", "mpi"), "there is no terminal to ask on: Which GPUs?; add --gpu"),
        (
            ("--type", "mpi", "--for", "run.yaml"),
            "--for names the run: --type and --gpu would describe another one; leave them out",
        ),
    ],
)
def test_wrong_options_write_nothing(folder: Path, words: tuple[str, ...], message: str) -> None:
    refused = init(*words)
    assert str(refused.exception).startswith(message)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["cluster.yaml", "run.yaml"])
def test_nothing_is_overwritten(folder: Path, name: str) -> None:
    (folder / name).write_text("mine\n")
    refused = init("--type", "mpi", "--gpu", "H100", "--region", "us-east-1")
    assert str(refused.exception) == (
        f"{name} exists, and init overwrites nothing; name another folder: `gpuctl init FOLDER`"
    )
    assert [path.read_text() for path in folder.iterdir()] == ["mine\n"]


def test_a_link_that_leads_nowhere_is_not_followed_and_a_file_is_no_folder(folder: Path) -> None:
    (folder / "run.yaml").symlink_to("elsewhere")
    line = ("--type", "mpi", "--gpu", "H100", "--region", "us-east-1")
    assert str(init(*line).exception).startswith("run.yaml exists, and init overwrites nothing")
    assert [path.name for path in folder.iterdir()] == ["run.yaml"]
    (folder / "file").touch()
    assert str(init("file", *line).exception) == (
        "file cannot be made: File exists; name a folder of yours"
    )


@pytest.mark.slow
def test_a_person_is_asked_three_questions(folder: Path) -> None:
    person, program = pty.openpty()
    try:
        os.write(person, b"torchrun\n\neu-north-1\n")
        done = subprocess.run(
            [*COMMAND, "init"],
            stdin=program,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    finally:
        os.close(person)
        os.close(program)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "What to run? nccl-tests, torchrun, mpi, ray, deepspeed, hello"
        " [nccl-tests]: Which GPUs? A100, A10G, B200, B300, H100, H200, L4, L40S,"
        " RTX PRO 4500, RTX PRO Server 6000, T4 [H100]: Which region? [us-east-1]: "
    )
    cluster = load_cluster(folder / "cluster.yaml")
    assert (cluster.instance_type, cluster.region) == ("p5.48xlarge", "eu-north-1")
    assert load_run(folder / "run.yaml").type == "torchrun"
