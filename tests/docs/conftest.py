"""A folder for each page in which its commands find the files that they name."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import HOME, blocks

STAND_INS = {
    "cluster.yaml": "stacks/demo.yaml",
    "FILE": "stacks/demo.yaml",
    "job.yaml": "stacks/nccl-tests.yaml",
    "nccl-tests.yaml": "stacks/nccl-tests.yaml",
    "policy.json": "tests/provision/golden/policies/all.json",
    "run.yaml": "stacks/nccl-tests.yaml",
    "train.dstack.yml": "stacks/nccl-tests.dstack.yaml",
    "job.sbatch": "tests/e2e/pair/foreign/ddp.sbatch",
    "task.yaml": "tests/e2e/pair/foreign/torchrun.sky.yaml",
}
"""Files that pages name without showing them: any file of that kind."""


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make the folder of a page: the files of its blocks (`# name.yaml`), `stacks/`, stand-ins."""
    made: dict[str, Path] = {}

    def make(page: str) -> Path:
        if page not in made:
            folder = tmp_path_factory.mktemp(page.replace("/", "-"))
            (folder / "stacks").symlink_to(HOME / "stacks")
            for name, source in STAND_INS.items():
                (folder / name).write_text((HOME / source).read_text())
            for block in blocks(page):
                if block.language == "yaml":
                    _write(folder, block.text)
            made[page] = folder
        return made[page]

    return make


def _write(folder: Path, text: str) -> None:
    """Write a block under the name in its first line; a whole cluster also as `cluster.yaml`."""
    first = text.partition("\n")[0].removeprefix("# ")
    if first.endswith(".yaml"):
        (folder / first).write_text(text + "\n")
    elif text.startswith("name:") and "instance_type" in (yaml.safe_load(text) or {}):
        (folder / "cluster.yaml").write_text(text + "\n")
