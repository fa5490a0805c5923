"""What a cluster file can ask of its machines, seen on machines that boot."""

import re
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file, read_until, run_file
from tests.e2e.region import ec2, what_bills
from tests.e2e.test_software import reboot

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

STATE = "cat /var/lib/gpuctl/steps /var/lib/gpuctl/finished /etc/hosts; ls -lR --full-time /root"


def test_a_stock_image_is_built_keeps_its_state_and_its_cluster_grows(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    def file(nodes: int, instance_type: str = "g5.8xlarge") -> str:
        setup = {"files": {"/etc/site": "ours\n"}, "commands": ["echo ran >> /root/ran"]}
        stock = {"image": "stock-debian-12", "instance_type": instance_type, "setup": setup}
        return str(cluster_file(tmp_path, "grows", nodes=nodes, **stock))

    the_software_is_built_and_checked(gpuctl, file(1))
    a_second_boot_changes_nothing(gpuctl, file(1))
    a_node_more_takes_nothing_from_a_run(gpuctl, file(2), tmp_path)

    output = gpuctl("--lab", "plan", file(2, "g5.12xlarge"))
    assert "0 to replace" in output
    assert "\nnode[0-1] cannot stay as they are: instance_type changed\n" in output

    a_node_that_died_is_planned_alone(gpuctl, file(2))
    gpuctl("--lab", "down", "grows", "--yes")
    assert what_bills(gpuctl, "grows") == {}


def the_software_is_built_and_checked(gpuctl: Gpuctl, file: str) -> None:
    with gpuctl.running("--lab", "up", file, "--yes") as up:
        for step in ("hold updates", "Open MPI", "nccl-tests", "verify", "setup 1 of 1"):
            read_until(up, step)
        read_until(up, "is ready")
        assert up.wait(60) == 0
    # cloud-init installed it: the stock image has no Open MPI
    assert "(Open MPI) 4." in gpuctl("--lab", "exec", "grows", "--", "mpirun", "--version")
    run = "/root/nccl-tests/build/all_gather_perf -b 8 -e 8 -w 1 -n 1"
    table = gpuctl("--lab", "exec", "grows", "--", f"mpirun --allow-run-as-root -n 2 {run}")
    assert "# Out of bounds values : 0 OK" in table
    assert "valid" in gpuctl("--lab", "exec", "grows", "--", "cloud-init schema --system").lower()
    assert "ours" in gpuctl("--lab", "exec", "grows", "--", "cat /etc/site")


def a_second_boot_changes_nothing(gpuctl: Gpuctl, file: str) -> None:
    before = gpuctl("--lab", "exec", "grows", "--", STATE)
    reboot(gpuctl, "grows")
    assert gpuctl("--lab", "exec", "grows", "--", STATE) == before
    output = gpuctl("--lab", "up", file, "--yes")
    assert "0 to create, 0 to change, 0 to replace, 0 to delete" in output


def a_node_more_takes_nothing_from_a_run(gpuctl: Gpuctl, bigger: str, folder: Path) -> None:
    before = gpuctl.json("--lab", "status")[0]["nodes"]
    endless = run_file(folder, "endless", ["echo up; sleep infinity"], nodes=1)
    with gpuctl.running("--lab", "run", str(endless), "--cluster", "grows") as process:
        read_until(process, "[node0] up")
        output = gpuctl("--lab", "up", bigger, "--yes")
        gpuctl("--lab", "stop", "endless")
        rest, _ = process.communicate(timeout=60)
        assert "stopped" in rest
        assert process.returncode == 130
    assert "Plan: 1 to create, 0 to change, 0 to replace, 0 to delete." in output
    after = gpuctl.json("--lab", "status")[0]["nodes"]
    assert {n["instance_id"] for n in before} < {n["instance_id"] for n in after}


def a_node_that_died_is_planned_alone(gpuctl: Gpuctl, file: str) -> None:
    """A node that powers off is terminated in the API, and the next plan makes it again."""
    nodes = gpuctl.json("--lab", "status")[0]["nodes"]
    (node1,) = (n for n in nodes if n["name"] == "node1")
    here = f"hostname -I | grep -qwF {node1['private_ip']}"
    gpuctl("--lab", "exec", "grows", "--", f"! {here} || systemctl poweroff --no-block")
    ec2(gpuctl).get_waiter("instance_terminated").wait(
        InstanceIds=[node1["instance_id"]], WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    states = {n["name"]: n["state"] for n in gpuctl.json("--lab", "status", "grows")[0]["nodes"]}
    assert (states["node0"], states["node1"]) == ("running", "terminated")
    output = gpuctl("--lab", "plan", file)
    assert "Plan: 1 to create, 0 to change, 0 to replace, 0 to delete." in output
    assert re.search(r"\+ aws:ec2/instance:Instance +node1\n", output)
