"""What a cluster file can ask of its machines, seen on machines that boot."""

import re
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file, read_until, run_file
from tests.e2e.region import ec2, what_bills

pytestmark = pytest.mark.lab


def test_a_setup_command_that_fails_fails_up_with_its_own_output(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    setup = {"commands": ["echo the license server said no; exit 4"]}
    file = cluster_file(tmp_path, "refused", nodes=1, setup=setup)
    output = gpuctl("--lab", "up", str(file), "--yes", code=1)
    assert "the license server said no" in output
    assert "gpuctl down refused" in output
    gpuctl("--lab", "down", "refused", "--yes")
    assert what_bills(gpuctl, "refused") == {}


def test_a_node_more_a_node_that_died_and_a_stock_image(gpuctl: Gpuctl, tmp_path: Path) -> None:
    stock = {"image": "stock-debian-12", "instance_type": "g5.8xlarge"}
    gpuctl("--lab", "up", str(cluster_file(tmp_path, "grows", nodes=1, **stock)), "--yes")
    # cloud-init installed it: the stock image has no Open MPI
    assert "(Open MPI) 4." in gpuctl("--lab", "exec", "grows", "--", "mpirun", "--version")

    bigger = cluster_file(tmp_path, "grows", nodes=2, **stock)
    before = gpuctl.json("--lab", "status")[0]["nodes"]
    endless = run_file(tmp_path, "endless", ["echo up; sleep infinity"], nodes=1)
    with gpuctl.running("--lab", "run", str(endless), "--cluster", "grows") as process:
        read_until(process, "[0] up")
        output = gpuctl("--lab", "up", str(bigger), "--yes")  # takes nothing from the run
        gpuctl("--lab", "stop", "endless")
        rest, _ = process.communicate(timeout=60)
        assert "stopped" in rest
        assert process.returncode == 130
    assert "Plan: 1 to create, 0 to change, 0 to replace, 0 to delete." in output
    after = gpuctl.json("--lab", "status")[0]["nodes"]
    assert {n["instance_id"] for n in before} < {n["instance_id"] for n in after}

    other = cluster_file(tmp_path, "grows", nodes=2, **stock | {"instance_type": "g5.12xlarge"})
    output = gpuctl("--lab", "plan", str(other))
    assert "-/+ aws:ec2/instance:Instance" in output
    assert "2 to replace" in output
    assert "\nnode[0-1] are replaced: instance_type changed\n" in output
    bigger = cluster_file(tmp_path, "grows", nodes=2, **stock)  # the same file

    # a node that powers off is terminated in the API, and the next plan makes it alone again
    (node1,) = (n for n in after if n["name"] == "node1")
    here = f"hostname -I | grep -qwF {node1['private_ip']}"
    gpuctl("--lab", "exec", "grows", "--", f"! {here} || systemctl poweroff --no-block")
    ec2(gpuctl).get_waiter("instance_terminated").wait(
        InstanceIds=[node1["instance_id"]], WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    states = {n["name"]: n["state"] for n in gpuctl.json("--lab", "status", "grows")[0]["nodes"]}
    assert (states["node0"], states["node1"]) == ("running", "terminated")
    output = gpuctl("--lab", "plan", str(bigger))
    assert "Plan: 1 to create, 0 to change, 0 to replace, 0 to delete." in output
    assert re.search(r"\+ aws:ec2/instance:Instance +node1\n", output)
    gpuctl("--lab", "down", "grows", "--yes")
    assert what_bills(gpuctl, "grows") == {}
