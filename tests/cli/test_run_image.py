"""`gpuctl run --no-image`: the file's image is left out of the plan."""

import json
from pathlib import Path

from tests.cli.test_command import gpuctl
from tests.engine.conftest import make_inventory


def test_no_image_leaves_the_files_image_out(tmp_path: Path) -> None:
    saved = tmp_path / "inventory.json"
    saved.write_text(make_inventory(2).model_dump_json())
    seed = "stacks/nccl-tests.dstack.yaml"
    arguments = ("run", seed, "--dry-run", "--json", "--inventory", str(saved))
    written = json.loads(gpuctl(*arguments, home=tmp_path).stdout)
    assert written["image"] == {
        "reference": "dstackai/efa",
        "id": "",
        "digest": None,
        "username": "",
        "password_secret": "",
        "privileged": False,
        "volumes": [],
    }
    without = json.loads(gpuctl(*arguments, "--no-image", home=tmp_path).stdout)
    assert without["image"] is None
    different = {"image", "run_id", "nodes"}
    assert {k: v for k, v in without.items() if k not in different} == {
        k: v for k, v in written.items() if k not in different
    }
