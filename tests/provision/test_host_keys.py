"""Host keys on the console, pinned in known_hosts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from config.errors import BrokenNodes, CloudError
from config.progress import silent
from config.target import Target
from nodes.keys import generate_pair
from provision.aws.clients import client
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.state.host_keys import (
    BootingMachine,
    BootWatch,
    KnownHosts,
    boot_limit_s,
    read_host_key,
)

KEY = " ".join(generate_pair("root@ip-10-213-128-4")[1].split()[:2])
OTHER = " ".join(generate_pair("root@ip-10-213-128-4")[1].split()[:2])
BEGIN, END = "-----BEGIN SSH HOST KEY KEYS-----", "-----END SSH HOST KEY KEYS-----"
BLOCK = f"{BEGIN}\r\n{KEY} root@ip-10-213-128-4\r\n{END}\r\n"


def test_the_key_is_found_among_everything_else() -> None:
    console = f"[    0.0] Linux\nci-info: | ssh-ed25519 |\n{BLOCK}login: "
    assert read_host_key(console) == KEY


def test_prefixes_of_the_kernel_and_other_keys_do_not_matter() -> None:
    ecdsa = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTY= root@ip"
    console = f"[ 20.1] cloud-init[99]: {BEGIN}\n[ 20.1] cloud-init[99]: {ecdsa}\n"
    console += f"[ 20.1] cloud-init[99]: {KEY} root@ip\n[ 20.1] cloud-init[99]: {END}\n"
    assert read_host_key(console) == KEY


def test_the_last_block_counts() -> None:
    assert read_host_key(BLOCK.replace(KEY, OTHER) + BLOCK) == KEY


@given(st.integers(min_value=0, max_value=len(BLOCK) - len("\r\n") - 1))
def test_a_console_that_ends_early_gives_no_key(length: int) -> None:
    assert read_host_key(BLOCK[:length]) is None


def test_a_key_broken_by_another_message_gives_none() -> None:
    broken = KEY[:40] + "\n[   21.0] eth0: link up\n" + KEY[40:]
    assert read_host_key(f"{BEGIN}\n{broken} root@ip\n{END}\n") is None


def test_pinned_keys_stay_while_their_instances_do(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    bastion = BootingMachine("bastion", "i-b", "198.18.0.3", 2222)
    node = BootingMachine("node0", "i-0", "10.213.128.4")
    known = KnownHosts(path)
    known.pin(node, KEY)
    known.pin(bastion, OTHER)
    assert path.read_text() == (f"10.213.128.4 {KEY} i-0\n[198.18.0.3]:2222 {OTHER} i-b\n")
    again = KnownHosts.read(path, [bastion, node])
    assert (again.key(node), again.key(bastion)) == (KEY, OTHER)


def test_a_replaced_node_with_the_old_address_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    KnownHosts(path).pin(BootingMachine("node0", "i-0", "10.213.128.4"), KEY)
    replacement = BootingMachine("node0", "i-1", "10.213.128.4")
    again = KnownHosts.read(path, [replacement])
    assert again.key(replacement) is None
    again.write()
    assert path.read_text() == ""


def test_bare_metal_may_take_an_hour() -> None:
    limits = {name: boot_limit_s(name) for name in ("g4dn.metal", "i7ie.metal-48xl", "p5.48xlarge")}
    assert limits == {"g4dn.metal": 3600, "i7ie.metal-48xl": 3600, "p5.48xlarge": 1200}


def test_a_type_without_nitro_is_asked_without_latest(empty_region: Target, tmp_path: Path) -> None:
    """The lab refuses `Latest` for it, as AWS does."""
    ec2 = client(empty_region, "ec2")
    vpc = ec2.create_vpc(CidrBlock="10.213.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.213.0.0/24", AvailabilityZone="us-east-1a")[
        "Subnet"
    ]["SubnetId"]
    made = ec2.run_instances(
        ImageId=image_id(client(empty_region, "ssm"), BASTION_IMAGE),
        InstanceType="g4dn.metal",
        SubnetId=subnet,
        MinCount=1,
        MaxCount=1,
    )
    node = BootingMachine("node0", made["Instances"][0]["InstanceId"], "10.213.0.4")
    with pytest.raises(ClientError, match=r"\(UnsupportedOperation\).*latest console logs"):
        ec2.get_console_output(InstanceId=node.instance_id, Latest=True)
    watch = BootWatch(ec2, [node], KnownHosts(tmp_path / "known_hosts"), silent)
    assert asyncio.run(watch._console(node)) == ""


class Console:
    """EC2 with one running instance; each call for its console takes the next answer."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)

    def describe_instances(self, **_: Any) -> Any:
        running = {"InstanceId": "i-0", "State": {"Name": "running"}}
        return {"Reservations": [{"Instances": [running]}]}

    def get_console_output(self, **_: Any) -> Any:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer.startswith("!"):
            error = {"Error": {"Code": answer[1:], "Message": "no"}}
            raise ClientError(error, "GetConsoleOutput")  # type: ignore[arg-type]
        return {"Output": answer}


def watched(tmp_path: Path, limit_s: int, *answers: str) -> tuple[BootWatch, BootingMachine]:
    node = BootingMachine("node0", "i-0", "10.213.128.4")
    ec2: Any = Console(*answers)
    return BootWatch(ec2, [node], KnownHosts(tmp_path / "known"), silent, limit_s), node


def test_an_error_that_may_pass_is_awaited(tmp_path: Path) -> None:
    watch, node = watched(tmp_path, 60, "!InternalError", "!InvalidInstanceID.NotFound", BLOCK)
    for _ in range(3):
        asyncio.run(watch._read_consoles([node]))
    assert watch._known.key(node) == KEY


def test_credentials_and_permissions_end_the_wait(tmp_path: Path) -> None:
    watch, node = watched(tmp_path, 60, "!UnauthorizedOperation")
    with pytest.raises(CloudError, match=r"^AWS refused GetConsoleOutput: UnauthorizedOperation"):
        asyncio.run(watch._console(node))


def test_the_limit_names_the_last_error(tmp_path: Path) -> None:
    watch, _ = watched(tmp_path, -1, "!InternalError")
    with pytest.raises(BrokenNodes) as caught:
        asyncio.run(watch.watch())
    assert caught.value.message == (
        "node0 (10.213.128.4) did not boot within -1 min"
        " (AWS refused GetConsoleOutput: InternalError: no)"
    )
    assert list(caught.value.causes) == ["node0"]
