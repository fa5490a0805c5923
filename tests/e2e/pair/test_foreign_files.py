"""Files of dstack, SkyPilot, Slurm, Kubeflow and Volcano, run as they are on two nodes of the lab.

Those in `foreign` have the keys and values of public ones (tests/formats/dstack_facts.yaml,
manifest_corpus.py), and commands that print where they run. No registry is reachable and no GPU
is there: images are named and left out.
"""

import re
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, read_until, run_file

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

FOREIGN = Path(__file__).parent / "foreign"
PLACEHOLDERS = (
    "SLURM_ARRAY_TASK_ID=2",
    "IMAGE_URI=public.ecr.aws/hpc-cloud/nccl-tests:latest",
    "GPUS=2",
    "NODES=2",
)

# The lines that the job prints, sorted. {ip0} and {host0} are those of node0.
SAID = {
    "entrypoint.dstack.yml": (
        "[node0] rank 0 on {host0}",
        "[node0] rank 1 on {host0}",
        "[node0] rank 2 on {host1}",
        "[node0] rank 3 on {host1}",
    ),
    "groups.dstack.yml": (
        "[node0] head of 2, worker {ip1}, meta-llama/Llama-3.1-8B",
        "[node1] worker 1 of master {ip0}",
    ),
    "repo.dstack.yml": (
        "[node0] from the repository",
        "[node0] nobody me in /workspace/code/src, /mnt/datasets/hostname, shell /bin/sh",
        "[node1] from the repository",
        "[node1] nobody me in /workspace/code/src, /mnt/datasets/hostname, shell /bin/sh",
    ),
    "minimal.sky.yaml": ("[node0] hello from 0 of 2", "[node1] hello from 1 of 2"),
    "torchrun.sky.yaml": (
        "[node0] setup 0",
        "[node0] torchrun --nnodes=2 --nproc_per_node=8   --master_addr={ip0} --master_port=12375"
        " --node_rank=0",
        "[node1] setup 1",
        "[node1] torchrun --nnodes=2 --nproc_per_node=8   --master_addr={ip0} --master_port=12375"
        " --node_rank=1",
    ),
    "envs.sky.yaml": (
        "[node0] size 13 lr 3e-4 wandb True pattern ${{HOME}}/x token ***",
        "[node1] size 13 lr 3e-4 wandb True pattern ${{HOME}}/x token ***",
    ),
    "mounts.sky.yaml": (
        "[node0] copied",
        '[node0] main.py {{"lr": 0.1}}',
        "[node0] same",
        "[node1] copied",
        '[node1] main.py {{"lr": 0.1}}',
        "[node1] same",
    ),
    "anyof.sky.yaml": ("[node0] head of 2",),
    "early.sky.yaml": ("[node0] head done", "[node1] worker done"),
    "ddp.sbatch": (
        "[node0] head {ip0} of 2",
        "[node0] torchrun --nnodes 2 --node_rank 0 --rdzv_endpoint {ip0}:29500 on {host0}",
        "[node0] torchrun --nnodes 2 --node_rank 1 --rdzv_endpoint {ip0}:29500 on {host1}",
    ),
    "ranks.sbatch": (
        "[node0] 0: rank 0 of 4, local 0, master {ip0}",
        "[node0] 1: rank 1 of 4, local 1, master {ip0}",
        "[node0] 2: rank 2 of 4, local 0, master {ip0}",
        "[node0] 3: rank 3 of 4, local 1, master {ip0}",
        "[node0] gpuctl: module load python: there are no environment modules, nodes have their"
        " software",
    ),
    "steps.sbatch": (
        "[node0] server",
        "[node0] server over",
        "[node0] worker 0 on {host0}",
        "[node0] worker 1 on {host1}",
    ),
    "tee.sbatch": (
        "[node0] gpuctl: WARNING: as in Slurm the job counts as done; `set -e -o pipefail` in the"
        " script makes a failed step the job's failure, except behind `&`, where `wait PID` has"
        " its status",
        "[node0] gpuctl: WARNING: step 0 failed with 3, and the script ended with 0: srun bash -c"
        " [ $SLURM_PROCID = 1 ] && exit 3; echo rank 0 is done",
        "[node0] log has 1 line",
        "[node0] rank 0 is done",
        "[node0] srun: error: {ip1}: task 1: Exited with exit code 3",
    ),
    "python.sbatch": ("[node0] lr 0.025", "[node0] task 2 of 4"),
    "export.sbatch": (
        "[node0] from 0",
        "[node0] from 1",
        "[node0] none",
        "[node0] token *** epochs 3 in work slurm_script",
    ),
    "mpijob.yaml": (
        "[node0] rank 0 on {host0}, prepared by busybox",
        "[node0] rank 1 on {host0}, prepared by busybox",
        "[node0] rank 2 on {host1}, prepared by busybox",
        "[node0] rank 3 on {host1}, prepared by busybox",
    ),
    "mpijob-domain.yaml": (
        "[node0] rank 0 INFO on {host0}",
        "[node0] rank 1 INFO on {host0}",
        "[node0] rank 2 INFO on {host1}",
        "[node0] rank 3 INFO on {host1}",
    ),
    "mpijob-kueue.yaml": (
        "[node0] rank 0 WARN on {host0}",
        "[node0] rank 1 WARN on {host0}",
        "[node0] rank 2 WARN on {host1}",
        "[node0] rank 3 WARN on {host1}",
    ),
    "trainjob-runtime.yaml": (
        "[node0] node 0 of 2, 2 each, master {ip0}:29500, runtime 0.001",
        "[node1] node 1 of 2, 2 each, master {ip0}:29500, runtime 0.001",
    ),
    "trainjob-mpi.yaml": (
        "[node0] rank 0 of 4 on {host0}",
        "[node0] rank 1 of 4 on {host0}",
        "[node0] rank 2 of 4 on {host1}",
        "[node0] rank 3 of 4 on {host1}",
    ),
    "volcano-mpi.yaml": ("[node0] rank 0 on {host0}", "[node0] rank 1 on {host1}"),
    "volcano-one-task.yaml": (
        "[node0] index 0 of 2 in {ip0},{ip1} and {ip0},{ip1}",
        "[node1] index 1 of 2 in {ip0},{ip1} and {ip0},{ip1}",
    ),
    "volcano-pytorch.yaml": (
        "[node0] rank 0 of 2 at {ip0}:23456",
        "[node1] rank 1 of 2 at {ip0}:23456 in /home",
    ),
}

# It ends only when it is killed.
CHECKPOINTS = """\
import os, pathlib, signal
folder = pathlib.Path("checkpoints")
folder.mkdir()
for step in range(3):
    (folder / f"step-{step}").write_text(f"{os.environ['GPUCTL_NODE_RANK']} at {step}")
print("half of it by process", os.getpid(), flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def addresses(gpuctl: Gpuctl, cluster: str) -> list[str]:
    """The private addresses of the cluster's nodes, in rank order."""
    nodes = gpuctl.json("--lab", "status", cluster)[0]["nodes"]
    return [node["private_ip"] for node in nodes if node["name"] != "bastion"]


def test_a_task_of_dstack_has_its_python_files_secret_and_port(
    gpuctl: Gpuctl, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_test")
    arguments = ["--lab", "run", str(FOREIGN / "train.dstack.yml"), "--cluster", cluster]
    with gpuctl.running(*arguments) as process:
        lines = read_until(process, "[node0] serving")
        port = next(line.split()[-1] for line in lines if line.startswith("-- port 8000 of node0"))
        with urllib.request.urlopen(port, timeout=60) as answer:
            assert answer.read() == b"a board of losses\n"
        rest, _ = process.communicate(timeout=120)
        assert process.returncode == 0, rest
    # the secret is masked, although the job printed it
    said = sorted(re.findall(r"^\[node\d\] rank .*$", "".join(lines) + rest, re.MULTILINE))
    assert said == [
        f"[node{rank}] rank {rank}: {{'lr': 0.1}}, ü and more, ***, Python 3.11, True, True"
        for rank in (0, 1)
    ]


@pytest.mark.parametrize("name", SAID)
def test_a_foreign_file_runs_as_it_is(
    gpuctl: Gpuctl,
    cluster: str,
    addresses: list[str],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_test")
    options = ["--no-image", *(word for pair in PLACEHOLDERS for word in ("--set", pair))]
    output = gpuctl("--lab", "run", str(FOREIGN / name), "--cluster", cluster, *options)
    # Without the lines "[HOST:PID] …" of Open MPI: it warns if an ssh that it has started is there
    # before its setpgid (open-mpi/ompi#2957).
    said = sorted(re.findall(r"^\[node\d\] [^\s\[].*$", output, re.MULTILINE))
    hosts = [f"ip-{address.replace('.', '-')}" for address in addresses]
    names = {f"ip{rank}": address for rank, address in enumerate(addresses)}
    names |= {f"host{rank}": host for rank, host in enumerate(hosts)}
    assert said == [line.format(**names) for line in SAID[name]]


def test_checkpoints_of_a_job_that_was_killed_come_back(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(CHECKPOINTS)
    fields = {"workdir": ".", "outputs": ["checkpoints/"]}
    file = run_file(tmp_path, "killed", ["python3 train.py"], **fields)
    with gpuctl.running("--lab", "run", str(file), "--cluster", cluster) as process:
        lines = [read_until(process, "half of it")[-1], read_until(process, "half of it")[-1]]
        pid = next(line for line in lines if line.startswith("[node1]")).split()[-1]
        gpuctl("--lab", "ssh", cluster, "node1", f"kill -KILL {pid}")
        rest, _ = process.communicate(timeout=90)
        assert process.returncode == 137, rest
    run_id = gpuctl.json("--lab", "ps")[0]["run_id"]
    assert "-- run failed: node1: killed by SIGKILL (137)" in rest
    outputs = tmp_path / "outputs" / run_id
    texts = {
        str(path.relative_to(outputs)): path.read_text()
        for path in outputs.glob("rank-*/**/*")
        if path.is_file()
    }
    assert texts == {
        f"rank-{rank}/checkpoints/step-{step}": f"{rank} at {step}"
        for rank in (0, 1)
        for step in range(3)
    }
