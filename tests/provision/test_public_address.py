"""The step that waits for a node's Elastic IP, against the lab's own metadata service."""

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.api.metadata import Metadata, MetadataServer
from provision.setup.software.script import STEPS
from tests.provision.test_cloud_init import Sandbox, titles

ADDRESS = "198.18.0.7"


class Node:
    """An instance that has its address when it has been asked for `asked` times."""

    id, instance_type, private_ip = "i-1", "p4d.24xlarge", "127.0.0.1"
    availability_zone = "us-east-1a"
    ec2_backend = SimpleNamespace(region_name="us-east-1", notice_of=lambda _: None)

    def __init__(self, late: int) -> None:
        self.late = late

    @property
    def public_ip(self) -> str | None:
        self.late -= 1
        return ADDRESS if self.late < 0 else None


@pytest.fixture
def service() -> Iterator[tuple[list[Node], int]]:
    """The instances, and the port."""
    nodes: list[Node] = []
    listening = socket.create_server(("127.0.0.1", 0))
    server = MetadataServer(listening, Metadata(lambda: nodes))
    yield nodes, listening.getsockname()[1]
    server.close()


def step(root: Path, port: int) -> tuple[int, str]:
    sandbox = Sandbox(root)
    (sandbox.bin / "python3").symlink_to("/usr/bin/python3")
    script = (STEPS / "public-address.sh").read_text().replace("time.sleep(5)", "pass")
    done = sandbox.run(script.replace("169.254.169.254", f"127.0.0.1:{port}"))
    return done.returncode, done.stdout + done.stderr


def test_a_node_waits_until_it_has_its_address(
    service: tuple[list[Node], int], tmp_path: Path
) -> None:
    nodes, port = service
    nodes.append(Node(late=5))
    assert step(tmp_path, port) == (0, f"{ADDRESS}\n")


def test_the_wait_ends_with_the_reason(service: tuple[list[Node], int], tmp_path: Path) -> None:
    nodes, port = service
    nodes.append(Node(late=1000))
    assert step(tmp_path, port) == (
        1,
        "no public address after five minutes: the Elastic IP is not associated with this node\n",
    )


def test_it_comes_before_everything_that_needs_the_network() -> None:
    direct = titles("stock-ubuntu-24.04", network={"access": "elastic-ip"})
    assert direct[:5] == [
        "'host keys'",
        "limits",
        "'hold updates'",
        "'public address'",
        "'NVIDIA driver'",
    ]
    assert "'public address'" not in titles("stock-ubuntu-24.04")
