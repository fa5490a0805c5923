"""What a manifest's numbers and names become in the run file."""

import os
import subprocess
from pathlib import Path

import pytest

from config.loading.load import load_run
from config.run.run_file import Task
from tests.formats.manifest_texts import MPIJOB, TRAINJOB, VOLCANO
from tests.formats.test_manifests import complaints, open_mpi, written


@pytest.mark.parametrize(
    ("runtime", "image"),
    [
        ("torch-distributed", "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"),
        ("mlx-distributed", "ghcr.io/kubeflow/trainer/mlx-runtime"),
        ("jax-distributed", "nvcr.io/nvidia/jax:25.10-py3"),
        ("xgboost-distributed", "ghcr.io/kubeflow/trainer/xgboost-runtime"),
        ("deepspeed-distributed", "ghcr.io/kubeflow/trainer/deepspeed-runtime"),
        ("mpi-distributed", "mpioperator/mpi-pi:openmpi"),
    ],
)
def test_a_trainjob_without_an_image_has_its_runtimes(
    tmp_path: Path, runtime: str, image: str
) -> None:
    text = TRAINJOB.replace("torch-distributed", runtime)
    assert load_run(written(tmp_path, text)).image == image
    assert load_run(written(tmp_path, text + "    image: mine\n")).image == "mine"


@pytest.mark.parametrize(
    ("resources", "slots"),
    [
        ("{}", 1),
        ("{limits: {nvidia.com/gpu: 8}, requests: {nvidia.com/gpu: 4}}", 4),
        ("{requests: {nvidia.com/gpu: '4'}}", 4),
        ("{limits: {nvidia.com/gpu: 1}}", 1),
        ("{limits: {nvidia.com/gpu: 0}}", 1),
        ("{limits: {nvidia.com/gpu: many}}", 1),
    ],
)
def test_ranks_of_a_trainjob_are_the_gpus_that_it_wants(
    tmp_path: Path, resources: str, slots: int
) -> None:
    text = TRAINJOB.replace("torch-distributed", "mpi-distributed")
    run = load_run(written(tmp_path, text + f"    resourcesPerNode: {resources}\n"))
    assert run.roles["master"].env.items() >= open_mpi(slots).items()


@pytest.mark.parametrize(
    ("seconds", "duration"),
    [(1, 1), (999_999, 999_999), (1_000_000, 16_667 * 60), (1_000_020, 16_667 * 60)],
)
def test_a_deadline_is_never_shorter_than_the_manifests(
    tmp_path: Path, seconds: int, duration: int
) -> None:
    text = TRAINJOB + f"  activeDeadlineSeconds: {seconds}\n"
    assert load_run(written(tmp_path, text)).max_duration == duration


def test_plugin_mpi_names_the_master_in_one_word_or_in_two(tmp_path: Path) -> None:
    text = VOLCANO.replace("      replicas: 2\n", "")
    for arguments in ("--master=two", "--master, two", "-master, two", "-v, --master=two"):
        plugins = f"spec:\n  plugins: {{mpi: [{arguments}]}}\n  tasks"
        assert complaints(tmp_path, text.replace("spec:\n  tasks", plugins)) == [
            "8:48: E225 task one does more than wait for mpirun (in sshd); write a run file:"
            " `roles` have separate commands"
        ]


ONE_COMPLETES = "- name: one\n      policies: [{event: TaskCompleted, action: CompleteJob}]"
ONE_TASK = VOLCANO[: VOLCANO.index("    - name: two")]
TOO_MANY = "is 600, above 512; use 1 to 512"
MPI_WORKERS = "E202 'spec.mpiReplicaSpecs.Worker.replicas'"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (MPIJOB.replace("replicas: 2", "replicas: 600"), [f"12:17: {MPI_WORKERS} {TOO_MANY}"]),
        (TRAINJOB + "    numNodes: 600\n", [f"8:15: E202 'spec.trainer.numNodes' {TOO_MANY}"]),
        (
            VOLCANO.replace("replicas: 2", "replicas: 600"),
            [f"9:17: E202 'spec.tasks[1].replicas' {TOO_MANY}"],
        ),
        (
            ONE_TASK.replace("- name: one", "- replicas: 600"),
            [f"6:17: E202 'spec.tasks[0].replicas' {TOO_MANY}"],
        ),
        (
            MPIJOB.replace("replicas: 2", "replicas: x"),
            [
                "12:17: E103 'spec.mpiReplicaSpecs.Worker.replicas' is 'x', must be a whole number;"
                " write digits only, such as 2"
            ],
        ),
        (
            MPIJOB.replace("replicas: 2", "replicas: 0"),
            [
                "12:17: E202 'spec.mpiReplicaSpecs.Worker.replicas' is 0, below 1; use 1 or more",
            ],
        ),
        (MPIJOB.replace("{name: pi}", "{generateName: pi--}"), []),
        (
            MPIJOB.replace("name: pi", "name: 8.nccl-test-of-a-name-with-more-than-41"),
            [
                "3:18: W204 'metadata.name' is '8.nccl-test-of-a-name-with-more-than-41': the run"
                " is called 'job-8-nccl-test-of-a-name-with-more-than'; write lower-case letters,"
                " digits and hyphens, at most 41, with a letter first, to choose its name"
            ],
        ),
        (
            MPIJOB.replace("{name: pi}", "{generateName: X-}"),
            [
                "3:26: E203 'metadata.generateName' is 'X', which no run can be called; write"
                " lower-case letters, digits and hyphens, at most 41, with a letter first"
            ],
        ),
        (
            MPIJOB.replace("{name: pi}", "{name: 5}"),
            [
                "3:11: E102 'metadata.name' is missing; add it",
                "3:18: E103 'metadata.name' is the number 5, must be text; quote it: '5'",
            ],
        ),
    ],
)
def test_a_wrong_number_or_name_is_told_where_the_manifest_has_it(
    tmp_path: Path, text: str, lines: list[str]
) -> None:
    assert complaints(tmp_path, text) == lines


WORKERS_OF_TORCH = VOLCANO.replace("sshd, -D", "train").replace(
    "spec:\n  tasks", "spec:\n  plugins: {pytorch: [--master=one, --port=3000]}\n  tasks"
)


def test_a_master_and_workers_with_commands_of_their_own(tmp_path: Path) -> None:
    text = WORKERS_OF_TORCH.replace("- name: one", ONE_COMPLETES)
    run = load_run(written(tmp_path, text))
    assert isinstance(run, Task)
    assert (run.nodes, run.stop_criteria) == (3, "master-done")
    master, worker = (run.roles[role].commands or () for role in ("master", "worker"))
    assert (master[-1], worker[-1]) == ("mpirun x", "train")
    assert master[1:5] == (
        'printf %s "$GPUCTL_MASTER_NODE_IP" >/etc/volcano/one.host && export'
        " VC_ONE_HOSTS=\"$(tr '\\n' , </etc/volcano/one.host)\" VC_ONE_NUM=1",
        'printf %s "$(tail -n +2 <<<"$GPUCTL_NODES_IPS")" >/etc/volcano/two.host && export'
        " VC_TWO_HOSTS=\"$(tr '\\n' , </etc/volcano/two.host)\" VC_TWO_NUM=2",
        'export MASTER_ADDR="$GPUCTL_MASTER_NODE_IP" MASTER_PORT=3000'
        ' WORLD_SIZE="$GPUCTL_NODES_NUM" RANK="$GPUCTL_NODE_RANK"',
        "export VC_TASK_INDEX=$((0)) VK_TASK_INDEX=$((0))",
    )
    assert worker[4] == (
        "export VC_TASK_INDEX=$((GPUCTL_NODE_RANK - 1)) VK_TASK_INDEX=$((GPUCTL_NODE_RANK - 1))"
    )
    run = load_run(written(tmp_path, WORKERS_OF_TORCH))
    assert isinstance(run, Task)
    assert run.stop_criteria == "all-done"


def test_variables_of_variables_do_not_grow_without_end(tmp_path: Path) -> None:
    first = "{name: A0, value: '0123456789'}"
    more = [f"{{name: A{i}, value: $(A{i - 1})$(A{i - 1})}}" for i in range(1, 40)]
    text = TRAINJOB + f"    env: [{', '.join([first, *more])}]\n"
    (line,) = complaints(tmp_path, text)
    assert line.partition(" ")[2] == (
        "E202 'spec.trainer.env[14].value' has 163840 characters with its variables; use at most"
        " 100000"
    )


def test_a_task_without_a_name_has_its_number(tmp_path: Path) -> None:
    run = load_run(written(tmp_path, ONE_TASK.replace("- name: one\n      template", "- template")))
    assert isinstance(run, Task)
    assert ">/etc/volcano/default0.host && export VC_DEFAULT0_HOSTS=" in run.commands[1]


@pytest.mark.parametrize(
    ("entrypoint", "command", "output"),
    [
        ("", "", "a b $X\n"),
        ("printf '%s,' 'x y'", "unused", "x y,a b,$X,"),
    ],
)
def test_arguments_alone_go_to_the_images_entrypoint(
    tmp_path: Path, entrypoint: str, command: str, output: str
) -> None:
    args = "['a b', '$X']" if entrypoint else "[echo, 'a b', '$X']"
    run = load_run(written(tmp_path, TRAINJOB.replace("command: [train]", f"args: {args}")))
    assert isinstance(run, Task)
    assert ran(run.commands[-1], entrypoint, command).stdout == output


def test_without_arguments_the_image_runs_its_own_command(tmp_path: Path) -> None:
    run = load_run(written(tmp_path, TRAINJOB.replace("command: [train]", "numNodes: 1")))
    assert isinstance(run, Task)
    assert ran(run.commands[-1], "printf '%s,'", "'a b' c").stdout == "a b,c,"
    done = ran(run.commands[-1], "", "")
    assert (done.returncode, done.stderr) == (
        127,
        "gpuctl: there is no image, or it has no command\n",
    )


def ran(line: str, entrypoint: str, command: str) -> "subprocess.CompletedProcess[str]":
    image = {"GPUCTL_IMAGE_ENTRYPOINT": entrypoint, "GPUCTL_IMAGE_COMMAND": command}
    env = {**os.environ, **image}
    return subprocess.run(
        ["bash", "-c", line], env=env, capture_output=True, text=True, check=False
    )
