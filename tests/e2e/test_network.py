"""A cluster without a bastion, on machines that boot."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.network import slots
from nodes.keys import ensure_key
from provision.permissions.policy import BOUNDARY
from tests.e2e.conftest import DIRECT, Gpuctl, cluster_file, read_until, run_file
from tests.e2e.region import client, ec2, what_bills
from tests.e2e.ssh_agents import a_colleague, ssh_agent
from tests.infra.somebodys_network import SomebodysNetwork

pytestmark = [pytest.mark.lab, pytest.mark.thorough]


def test_nodes_with_public_addresses_of_their_own_while_the_api_throttles(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    file = cluster_file(tmp_path, "direct", network=DIRECT)
    with throttling(gpuctl):
        assert "Plan: " in gpuctl("--lab", "plan", str(file))
        output = gpuctl("--lab", "up", str(file), "--yes")
    reached_at_their_addresses(gpuctl, output)
    assert "No changes: the cluster is what the file says." in gpuctl(
        "--lab", "up", str(file), "--yes"
    )
    with throttling(gpuctl):
        gpuctl("--lab", "down", "direct", "--yes")
    assert what_bills(gpuctl, "direct") == {}


@contextmanager
def throttling(gpuctl: Gpuctl) -> Iterator[None]:
    """Until the end the API throttles every third call to EC2."""
    gpuctl("lab", "fault", "set", "throttle", "3")
    try:
        assert "now: throttle 3" in gpuctl("lab", "fault", "list")
        yield
    finally:
        gpuctl("lab", "fault", "clear", "throttle")


def reached_at_their_addresses(gpuctl: Gpuctl, output: str) -> None:
    """Check what `up` printed, and that ssh takes no detour."""
    assert "aws:ec2/natGateway" not in output
    assert "Cluster direct is ready\n  rank 0  node0  10.213." in output

    came_from, _, at, port = gpuctl(
        "--lab", "ssh", "direct", "node1", "echo $SSH_CONNECTION"
    ).split()
    slot = slots.held(gpuctl.lab)
    assert slot is not None
    assert came_from == slot.host_address, "this machine itself, not a bastion"
    assert f"  {at}  i-" in output
    assert port == "22"
    assert gpuctl("--lab", "exec", "direct", "--", "nproc").startswith("--- node[0-1]\n")
    refused = gpuctl("--lab", "ssh", "direct", "bastion", code=2)
    assert "cluster direct has no 'bastion'; it has node0, node1" in refused


def test_a_network_that_exists_and_a_bastion_in_another_zone(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    theirs = SomebodysNetwork.make(ec2(gpuctl), "10.214.0.0/16")
    public = theirs.public("10.214.0.0/24", "us-east-1b")
    nodes = theirs.private("10.214.1.0/24", theirs.nat(public), "us-east-1a")
    before = theirs.all
    file = cluster_file(tmp_path, "guest", network={"vpc": theirs.vpc})
    output = gpuctl("--lab", "up", str(file), "--yes")
    assert f"Network: {theirs.vpc}, which exists; the nodes in {nodes} (us-east-1a)," in output
    assert f"the bastion in {public}\n" in output
    assert "aws:ec2/vpc" not in output
    assert "aws:ec2/subnet" not in output
    assert "  rank 0  node0  10.214.1." in output
    names = gpuctl("--lab", "ssh", "guest", "node0", "--", "ssh", "node1", "hostname")
    assert names.strip()
    moved = cluster_file(tmp_path, "guest")
    assert (
        f"network.vpc: cluster 'guest' was created in {nodes} of {theirs.vpc}, and cannot move"
    ) in gpuctl("--lab", "plan", str(moved), code=2)
    gpuctl("--lab", "down", "guest", "--yes")
    assert what_bills(gpuctl, "guest") == {}
    assert theirs.all == before


def test_session_manager_and_no_open_port(
    gpuctl: Gpuctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    file = cluster_file(tmp_path, "closed", network={"access": "ssm", "cidr": "10.215.0.0/16"})
    with least_permissions(gpuctl, file):
        closed_to_all(gpuctl, file)
    assert what_bills(gpuctl, "closed") == {}


@contextmanager
def least_permissions(gpuctl: Gpuctl, file: Path) -> Iterator[None]:
    """Until the end the lab's credentials have the permissions that the cluster needs alone."""
    policy = file.with_suffix(".json")
    policy.write_text(gpuctl("iam-policy", str(file), "--for", "up,status,ssh,run,down"))
    boundary = gpuctl("iam-policy", "--boundary")
    client(gpuctl, "iam").create_policy(PolicyName=BOUNDARY, PolicyDocument=boundary)
    gpuctl("lab", "fault", "set", "policy", str(policy))
    try:
        yield
        denied = gpuctl("--lab", "capacity", "p4d.24xlarge", code=1)
        assert "is not authorized to perform: ec2:Describe" in denied
    finally:
        gpuctl("lab", "fault", "clear", "policy")


def closed_to_all(gpuctl: Gpuctl, file: Path) -> None:
    output = gpuctl("--lab", "up", str(file), "--yes")
    assert "aws:iam/instanceProfile" in output
    assert "bastion" not in output
    came_from, *_ = gpuctl("--lab", "ssh", "closed", "node1", "echo $SSH_CONNECTION").split()
    assert came_from.startswith("10.215."), "from within the VPC"
    assert gpuctl("--lab", "exec", "closed", "--", "nproc").startswith("--- node[0-1]\n")
    a_colleague_has_access_until_it_is_revoked(gpuctl, file.parent)
    groups = ec2(gpuctl).describe_security_groups()["SecurityGroups"]
    (ours,) = [group for group in groups if group["GroupName"] == "gpuctl-closed-nodes"]
    assert [rule["IpProtocol"] for rule in ours["IpPermissions"]] == ["-1"], "among themselves"
    run = run_file(file.parent, "hello", ["hostname"])
    ran = gpuctl("--lab", "run", str(run), "--cluster", "closed", "--on-stop", "keep")
    assert "-- node1 exited with code 0\n" in ran
    assert gpuctl.json("--lab", "status")[0]["state"] == "ready"
    gpuctl("--lab", "down", "closed", "--yes")


def a_colleague_has_access_until_it_is_revoked(gpuctl: Gpuctl, folder: Path) -> None:
    """The sessions are AWS's to allow, and the keys within them are the nodes'."""
    ann = a_colleague(gpuctl, "closed", folder / "ann")
    ensure_key(folder / "key", "ann@laptop")
    with ssh_agent(folder / "agent", folder / "key"):
        granted = gpuctl("--lab", "grant", "closed", str(folder / "key.pub"))
        assert granted.endswith(") has access to closed: node[0-1]\n")
        assert ann("--lab", "exec", "closed", "--", "whoami") == "--- node[0-1]\nroot\n"
        with ann.running("--lab", "ssh", "closed", "node0", "echo in; sleep 600") as shell:
            read_until(shell, "in\n")
            revoked = gpuctl.json("--lab", "revoke", "closed", "ann@laptop")
            assert shell.wait(60) == 255
        assert (revoked["machines"], revoked["unchecked"]) == (["node0", "node1"], [])
        refused = ann("--lab", "exec", "closed", "--", "whoami", code=255)
        assert refused.count("refused your ssh keys; ask a member to run `gpuctl ") == 2
