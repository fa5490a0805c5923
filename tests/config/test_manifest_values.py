"""What a manifest's numbers and names become in the run file."""

from pathlib import Path

import pytest

from config.loading.load import load_run
from tests.config.manifest_texts import TRAINJOB
from tests.config.test_manifests import open_mpi, written


@pytest.mark.parametrize(
    ("runtime", "image"),
    [
        ("torch-distributed", "pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime"),
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
        ("{limits: {nvidia.com/gpu: 8}, requests: {nvidia.com/gpu: 4}}", 8),
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
