"""AWS takes a spot node back: told to the run and by `status`, and nothing is left of it."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import DIRECT, Gpuctl, cluster_file, read_until, run_file
from tests.e2e.region import ec2, what_bills

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.thorough]

SECONDS = 25
"""Between notice and end, of AWS's 120: enough for the agent to look and for a status."""


@pytest.fixture
def cluster(gpuctl: Gpuctl, tmp_path: Path) -> Iterator[str]:
    file = cluster_file(tmp_path, "fleeting", capacity={"type": "spot"}, network=DIRECT)
    gpuctl("--lab", "up", str(file), "--yes")
    yield "fleeting"
    gpuctl("lab", "fault", "clear")
    if what_bills(gpuctl, "fleeting"):
        gpuctl("--lab", "down", "fleeting", "--yes")


ASKS = """
import sys, urllib.request as http
url = "http://169.254.169.254/latest/"
ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
token = http.urlopen(http.Request(url + "api/token", headers=ttl, method="PUT"), timeout=5).read()
key = {"X-aws-ec2-metadata-token": token.decode()}
try:
    print(http.urlopen(http.Request(url + "meta-data/" + sys.argv[1], headers=key)).read().decode())
except http.HTTPError as error:
    print(error.code)
"""


def metadata(gpuctl: Gpuctl, path: str) -> str:
    """What node1 is told of itself, or the HTTP status."""
    command = shlex.join(["python3", "-c", ASKS, path])
    return gpuctl("--lab", "ssh", "fleeting", "node1", command).strip()


def test_an_interrupted_node_is_told_by_the_run_and_by_status(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    (node0, node1) = gpuctl.json("--lab", "status", cluster)[0]["nodes"]
    assert_metadata_of_an_undisturbed_node(gpuctl, cluster, node1)

    output = gpuctl("lab", "fault", "set", "spot-interruption", "fleeting-node9", code=2)
    assert output.startswith(
        "gpuctl: error: no spot instance 'fleeting-node9' runs in us-east-1 of the lab; there are:"
        " fleeting-node0, fleeting-node1\n"
    )
    saves = "trap 'echo saves: $(cat $GPUCTL_NOTICE_FILE)' USR1; echo up"
    waits = "while :; do sleep infinity & wait; done"
    file = run_file(tmp_path, "sleeps", [f"{saves}; {waits}"], on_notice={"signal": "USR1"})
    with gpuctl.running("--lab", "run", str(file), "--cluster", cluster) as process:
        read_until(process, "[node1] up")
        gpuctl("lab", "fault", "set", "spot-interruption", "fleeting-node1", str(SECONDS))
        line = read_until(process, "takes node1's")[-1]
        assert re.fullmatch(
            r"-- AWS takes node1's spot instance back: terminate at \d\d:\d\d:\d\d UTC, in"
            r" \d+s; the run fails then, unless it ends before\n",
            line,
        )
        notices = [read_until(process, "] saves: ")[-1] for _ in range(2)]
        assert {saved.partition(" ")[0] for saved in notices} == {"[node0]", "[node1]"}
        for saved in notices:  # both, because a job saves as a whole
            notice = json.loads(saved.partition("saves: ")[2])
            assert (notice["kind"], notice["node"]) == ("spot-interruption", "node1")
            assert 0 < notice["deadline"] - time.time() < SECONDS
        (now,) = gpuctl.json("--lab", "status", cluster)
        assert now["nodes"][0]["interrupted_at"] is None
        at = now["nodes"][1]["interrupted_at"][11:19]
        assert at in line
        assert now["problems"] == [
            f"AWS takes node1's spot instance back at {at} UTC; save your work on it, then"
            " `gpuctl up` replaces it"
        ]
        notice = json.loads(metadata(gpuctl, "spot/instance-action"))
        assert (notice["action"], notice["time"][11:19]) == ("terminate", at)
        rest, _ = process.communicate(timeout=120)
        assert process.returncode == 125, rest
    assert "failed in" in rest
    assert "exit code 125: node1 was lost: AWS took its spot instance back (terminate at " in rest
    (run,) = [one for one in gpuctl.json("--lab", "ps") if one["name"] == "sleeps"]
    assert run["status"] == "failed"

    (gone,) = ec2(gpuctl).describe_instances(InstanceIds=[node1["instance_id"]])["Reservations"]
    assert gone["Instances"][0]["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    (now,) = gpuctl.json("--lab", "status", cluster)
    assert now["nodes"][0]["instance_id"] == node0["instance_id"]
    assert re.fullmatch(
        r"node1 is (shutting-down|terminated): AWS took its spot instance back"
        r" \(Server\.SpotInstanceTermination\); `gpuctl up` replaces it",
        now["problems"][0],
    )
    assert_reservation_elsewhere_is_refused(gpuctl, cluster, node0["instance_id"], tmp_path)
    gpuctl("--lab", "down", cluster, "--yes")
    assert what_bills(gpuctl, cluster) == {}


def assert_metadata_of_an_undisturbed_node(
    gpuctl: Gpuctl, cluster: str, node1: dict[str, str]
) -> None:
    """Check what node1 reads of itself; cloud-init had its documents from the disk all the same."""
    assert metadata(gpuctl, "instance-id") == node1["instance_id"]
    assert metadata(gpuctl, "local-ipv4") == node1["private_ip"]
    assert metadata(gpuctl, "spot/instance-action") == "404"
    assert gpuctl("--lab", "ssh", cluster, "node1", "cloud-id") == "nocloud\n"


def assert_reservation_elsewhere_is_refused(
    gpuctl: Gpuctl, cluster: str, node: str, tmp_path: Path
) -> None:
    """Check that one in another zone than the cluster's node is refused before anything changes."""
    (found,) = ec2(gpuctl).describe_instances(InstanceIds=[node])["Reservations"]
    zone = found["Instances"][0]["Placement"]["AvailabilityZone"]
    told = gpuctl("lab", "fault", "set", "reservation", "wrong-zone", "p4d.24xlarge", "2", zone)
    reservation = told.split("id: ")[1].split("}")[0]
    other = cluster_file(
        tmp_path, cluster, network=DIRECT, capacity={"type": "reservation", "id": reservation}
    )
    output = gpuctl("--lab", "up", str(other), "--yes", code=2)
    (error,) = [line for line in output.splitlines() if line.startswith("gpuctl: error:")]
    elsewhere = "us-east-1b" if zone == "us-east-1a" else "us-east-1a"
    assert error == (
        f"gpuctl: error: capacity.id: {reservation} is in {elsewhere}, the cluster in {zone}"
        f" (ReservationCapacityExceeded); name one in {zone}, or remove the cluster first:"
        f" `{gpuctl.program} down {cluster}`"
    )
