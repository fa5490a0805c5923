import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.errors import LabError
from lab import network
from lab.host import call

FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


@pytest.fixture
def up() -> Iterator[None]:
    assert network.traces() == (), "a lab is on this machine: `gpuctl lab stop` first"
    network.up()
    yield
    network.down()


def test_resolvers_are_those_that_others_can_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub, behind = tmp_path / "resolv.conf", tmp_path / "behind.conf"
    monkeypatch.setattr(network, "_RESOLVER_FILES", (stub, behind))
    assert network.resolvers() == ()
    stub.write_text("search example.org\nnameserver 127.0.0.53\nnameserver ::1\n")
    assert network.resolvers() == ()
    behind.write_text("nameserver 192.0.2.53\nnameserver 2001:db8::53\nnameserver 192.0.2.54\n")
    assert network.resolvers() == ("192.0.2.53", "192.0.2.54")
    stub.write_text("nameserver 203.0.113.53\n")
    assert network.resolvers() == ("203.0.113.53",)


@pytest.mark.lab
def test_down_puts_the_host_back() -> None:
    before = _host()
    network.up()
    network.add_vpc("10.213.0.0/16")
    network.add_subnet("10.213.0.0/24")
    assert FORWARD.read_text() == "1\n"
    network.down()
    assert _host() == before
    assert network.traces() == ()
    network.down()  # once more is fine


@pytest.mark.lab
@pytest.mark.usefixtures("up")
def test_ranges_of_the_lab_never_leave_the_host() -> None:
    network.add_vpc("10.213.0.0/16")
    for address in ("10.213.0.4", "10.213.255.254", "198.19.0.1"):
        assert _host_route(address) == "RTNETLINK answers: No route to host"
    assert "via 198.18.255.2 dev gpuctl-lab0" in _host_route("198.18.0.4")
    network.remove_vpc("10.213.0.0/16")
    assert "No route" not in _host_route("10.213.0.4")
    network.remove_vpc("10.213.0.0/16")  # once more is fine


@pytest.mark.lab
@pytest.mark.usefixtures("up")
def test_a_vpc_does_not_take_a_range_in_use() -> None:
    network.add_vpc("10.213.0.0/16")
    with pytest.raises(LabError) as overlap:
        network.add_vpc("10.213.128.0/17")
    assert str(overlap.value) == (
        "VPC range 10.213.128.0/17 overlaps the lab's 10.213.0.0/16;"
        " give the cluster another range (network.cidr), as 10.214.0.0/16"
    )
    resolver = network.resolvers()[0]
    with pytest.raises(LabError, match=f"overlaps this machine's resolver {resolver}/32"):
        network.add_vpc(f"{resolver}/32")
    network.add_vpc("10.214.0.0/16")


@pytest.mark.lab
@pytest.mark.usefixtures("up")
def test_every_subnet_has_its_gateway_on_the_bridge() -> None:
    network.add_vpc("10.213.0.0/16")
    network.add_subnet("10.213.0.0/24")
    network.add_subnet("10.213.16.0/20")
    assert _gateways() == ["10.213.0.1/24", "10.213.16.1/20"]
    network.remove_subnet("10.213.0.0/24")
    network.remove_subnet("10.213.0.0/24")  # once more is fine
    assert _gateways() == ["10.213.16.1/20"]


@pytest.mark.lab
def test_a_network_that_fails_to_come_up_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _host()
    monkeypatch.setattr(network, "_INSIDE_RULES", "no such rule")
    with pytest.raises(LabError, match="nft -f -` failed with exit code 1"):
        network.up()
    assert network.traces() == ()
    assert _host() == before


def _host() -> tuple[str, ...]:
    """All of the host that the lab's network touches."""
    mounts = Path("/proc/self/mounts").read_text()
    return FORWARD.read_text(), call("ip", "route"), call("nft", "list", "ruleset"), mounts


def _host_route(address: str) -> str:
    done = subprocess.run(
        ["ip", "route", "get", address], capture_output=True, text=True, check=False
    )
    return (done.stdout or done.stderr).strip()


def _gateways() -> list[str]:
    shown = call("ip", "-n", "gpuctl-lab", "-4", "-oneline", "address", "show", "dev", "br0")
    return [line.split()[3] for line in shown.splitlines()]


@pytest.mark.lab
@pytest.mark.usefixtures("up")
def test_the_metadata_address_answers_inside_the_lab_and_not_on_the_host() -> None:
    with network.listen(network.METADATA_ADDRESS, 80):
        # Nobody connects from here: where this is a cloud's machine, its own service would answer.
        assert "FEA9FEA9:0050" not in Path("/proc/net/tcp").read_text()
        assert "gpuctl-lab0" not in _host_route(network.METADATA_ADDRESS)
        call("nsenter", "--net=/run/netns/gpuctl-lab", sys.executable, "-c", CONNECTS)
        with pytest.raises(LabError, match=r"^nothing can listen on 169\.254\.169\.254:80 inside"):
            network.listen(network.METADATA_ADDRESS, 80)


CONNECTS = "import socket; socket.create_connection(('169.254.169.254', 80), 5).close()"
