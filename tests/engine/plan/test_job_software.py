"""What a run needs, compared with the software of its nodes: each warning with its exact words."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from config.cluster.cluster_file import Cluster
from config.cluster.job_software import JOB_SOFTWARE, planned_software
from config.run.run_file import RUN_TYPES
from engine.plan.requirement_check import missing_software
from engine.plan.stand_in import stand_in
from nodes.inventory import Inventory

EXAMPLE = "run job needs {}, and the nodes of cluster demo do not have {}: name a container"


def cluster(**fields: Any) -> Cluster:
    text = json.dumps({"name": "demo", "nodes": 1, "instance_type": "p5.48xlarge", **fields})
    return Cluster.model_validate_json(text)


def warned(
    *commands: str,
    inventory: Inventory | None = None,
    files: Mapping[str, str] = MappingProxyType({}),
    **run: Any,
) -> tuple[str, ...]:
    kind = RUN_TYPES[run.setdefault("type", "task")]
    file = kind.model_validate({"name": "job", "commands": commands, **run})
    inventory = inventory or stand_in(cluster())
    return tuple(missing_software(file, inventory, inventory.nodes, files))


def test_a_torchrun_job_needs_pytorch() -> None:
    assert warned("train.py", type="torchrun") == (
        "run job needs PyTorch, and the nodes of cluster demo do not have it: name a container"
        " `image` with it in the run file, or install it by `setup.commands` of the cluster file",
    )


def test_an_import_and_a_program_that_the_image_lacks_are_named_together() -> None:
    assert warned("python3 -c 'import torch; print(1)' && srun hostname") == (
        "run job needs PyTorch and Slurm, and the nodes of cluster demo do not have them: name a"
        " container `image` with them in the run file, or install them by `setup.commands` of the"
        " cluster file",
    )


def test_a_batch_script_gets_srun_from_gpuctl() -> None:
    assert warned("srun hostname", env={"SLURM_JOB_NAME": "job"}) == ()


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("python3 -c '\nimport os\nfrom mpi4py import MPI\n'", "mpi4py"),
        ("cd /data; LR=1 torchrun train.py", "PyTorch"),
        ("python3 -m torch.distributed.run train.py", "PyTorch"),
        ("accelerate launch train.py", "Accelerate"),
        ("ray status", "Ray"),
        ("conda run -n train python train.py", "conda"),
        ("pip install torch && srun torchrun train.py", "Slurm"),
    ],
)
def test_commands_name_what_they_need(command: str, title: str) -> None:
    (text,) = warned(command)
    assert text.startswith(EXAMPLE.format(title, "it"))


def test_scripts_that_commands_start_name_what_they_need() -> None:
    files = {
        "train.py": "import jax\ntry:\n    import torch\nexcept ImportError:\n    torch = None\n",
        "run.sh": "deepspeed train.py\n",
    }
    (text,) = warned("bash run.sh", files=files)
    assert text.startswith(EXAMPLE.format("DeepSpeed and JAX", "them"))


@pytest.mark.parametrize(
    "command",
    [
        "echo torchrun",
        "# torchrun train.py\ntrue",
        "pip install torch\ntorchrun train.py",
        "source /opt/venv/bin/activate\ntorchrun train.py",
        ". ~/miniconda3/etc/profile.d/conda.sh\nconda activate train\ntorchrun train.py",
        "curl -fsSL https://example.com/micromamba.sh | bash\nmamba run python3 -m torch",
        "/opt/venv/bin/python train.py -m torch",
        "docker run --gpus all nvcr.io/nvidia/pytorch torchrun train.py",
    ],
)
def test_a_run_that_needs_nothing_or_brings_it_is_not_warned_of(command: str) -> None:
    assert warned(command) == ()


def test_a_run_in_an_image_or_with_its_own_path_is_not_warned_of() -> None:
    assert warned("train.py", type="torchrun", image="nvcr.io/nvidia/pytorch:25.09-py3") == ()
    assert warned("train.py", type="torchrun", env={"PATH": "/opt/venv/bin:/usr/bin"}) == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"image": "ami-0123456789abcdef0"},
        {"setup": {"commands": ["pip3 install --break-system-packages torch"]}},
        {"setup": {"commands": ["pip3 install vllm"]}},
        {"setup": {"commands": ["pip3 install -r /etc/list"]}},
        {"setup": {"commands": ["/opt/install.sh"]}},
        {"software": {"packages": ["python3-torch"]}},
    ],
)
def test_a_cluster_that_has_it_or_of_which_nothing_is_known_is_not_warned_of(
    fields: dict[str, Any],
) -> None:
    assert warned("train.py", type="torchrun", inventory=stand_in(cluster(**fields))) == ()


def test_a_set_up_that_installs_something_else_is_warned_of() -> None:
    there = stand_in(cluster(setup={"commands": ["pip3 install wandb"]}))
    (text,) = warned("train.py", type="torchrun", inventory=there)
    assert text.startswith(EXAMPLE.format("PyTorch", "it"))


def test_what_up_found_on_the_nodes_counts() -> None:
    there = stand_in(cluster(image="ami-0123456789abcdef0"))

    def with_software(**software: str) -> Inventory:
        node = there.nodes[0].model_copy(update={"software": software})
        return there.model_copy(update={"nodes": (node,)})

    bare = with_software(openmpi="4.1.7")
    (text,) = warned("train.py", type="torchrun", inventory=bare)
    assert text.startswith(EXAMPLE.format("PyTorch", "it"))
    has_it = with_software(openmpi="4.1.7", torch="2.9.1")
    assert warned("train.py", type="torchrun", inventory=has_it) == ()


def test_every_software_is_installed_by_its_name() -> None:
    for key in JOB_SOFTWARE:
        assert key in planned_software(cluster(setup={"commands": [f"pip3 install {key}"]}))
