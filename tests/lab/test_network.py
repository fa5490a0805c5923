import ctypes
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from config.errors import LabError
from lab.host_commands import call
from lab.network import bridge, host_settings
from lab.network.bridge import METADATA_ADDRESS, LabNetwork
from lab.network.slots import Slot
from lab.places import DEFAULT, Places
from tests.lab.host import NOBODY, connects_as, on_its_own_host
from tests.labs import lab_for

FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


OUTSIDE = "203.0.113.2"
"""The first neighbour's address (RFC 5737: for documentation, nobody's)."""

PLACES, SLOT = Places(DEFAULT), Slot(0)


@pytest.fixture
def up() -> Iterator[LabNetwork]:
    """The network of this worker's lab."""
    places = lab_for("net")
    bridge.clear(places)
    made = LabNetwork.claim(places)
    made.up()
    yield made
    made.down()


def test_resolvers_are_those_that_others_can_ask(tmp_path: Path) -> None:
    stub, behind = files = tmp_path / "resolv.conf", tmp_path / "behind.conf"
    assert bridge.resolvers(files) == ()
    stub.write_text("search example.org\nnameserver 127.0.0.53\nnameserver ::1\n")
    assert bridge.resolvers(files) == ()
    behind.write_text("nameserver 192.0.2.53\nnameserver 2001:db8::53\nnameserver 192.0.2.54\n")
    assert bridge.resolvers(files) == ("192.0.2.53", "192.0.2.54")
    stub.write_text("nameserver 203.0.113.53\n")
    assert bridge.resolvers(files) == ("203.0.113.53",)


@pytest.mark.lab
@on_its_own_host
def test_down_puts_the_host_back() -> None:
    before = _host()
    made = LabNetwork.claim(PLACES)
    made.up()
    made.add_vpc("10.213.0.0/16")
    made.add_subnet("10.213.0.0/24")
    assert FORWARD.read_text() == "1\n"
    made.down()
    assert _host() == before
    assert bridge.traces(PLACES) == ()
    made.down()  # once more is fine


@pytest.mark.lab
@on_its_own_host
def test_the_gateway_keeps_its_hardware_address_while_machines_come_and_go() -> None:
    """Machines remember it for up to 45 s; what they send to a former one is lost."""
    made = LabNetwork.claim(PLACES)
    made.up()
    inside = ("ip", "-n", PLACES.namespace, "link")
    before = call(*inside, "show", "br0").split("link/ether ")[1].split()[0]
    call(*inside, "add", "port", "address", "02:00:00:00:00:01", "type", "veth")
    call(*inside, "set", "port", "master", "br0")
    assert f"link/ether {before} " in call(*inside, "show", "br0")
    made.down()


@pytest.mark.lab
@on_its_own_host
def test_the_last_lab_puts_the_host_back() -> None:
    FORWARD.write_text("0\n")
    before = _host()
    first, second = (LabNetwork.claim(Places(name)) for name in (DEFAULT, "b"))
    for one in (first, second):
        one.up()
        one.add_vpc("10.213.0.0/16")
    first.down()
    assert FORWARD.read_text() == "1\n"
    assert "via 198.19.15.2 dev gpuctl-lab1" in _host_route("198.19.0.4")
    for address in ("10.213.0.4", "198.18.0.4"):
        assert _host_route(address) == "RTNETLINK answers: No route to host"
    first.up()
    second.down()
    assert FORWARD.read_text() == "1\n"
    first.down()
    assert _host() == before
    assert bridge.traces(Places("b")) == ()


@pytest.mark.lab
@on_its_own_host
def test_forwarding_stays_on_for_others_who_came_while_the_lab_was_up() -> None:
    for kind in (("bridge",), ("veth", "peer", "name", "other")):
        FORWARD.write_text("0\n")
        made = LabNetwork.claim(PLACES)
        made.up()
        call("ip", "link", "add", "name", "docker0", "type", *kind)
        made.down()
        assert (FORWARD.read_text(), bridge.traces(PLACES)) == ("1\n", ())
        call("ip", "link", "delete", "docker0")


@pytest.mark.lab
@on_its_own_host
def test_only_a_limit_that_a_lab_raised_is_lowered_and_by_the_last_one() -> None:
    limit = Path("/run/max_user_instances")  # the kernel's own is every namespace's
    host_settings._INOTIFY = limit
    count = host_settings._inotify_instances
    host_settings._inotify_instances = lambda: 64
    first, second, third = (Places(name) for name in (DEFAULT, "b", "c"))
    for places in (first, second, third):
        host_settings.remember(places)
    limit.write_text("128\n")
    host_settings.give_back(third)
    assert limit.read_text() == "128\n"
    host_settings.allow_machines(first)
    host_settings.allow_machines(second)
    assert limit.read_text() == "8192\n"
    host_settings.give_back(first)
    assert limit.read_text() == "8192\n"
    host_settings.give_back(second)
    assert limit.read_text() == "128\n"
    host_settings.remember(third)
    limit.write_text("8192\n")  # somebody else's
    host_settings.allow_machines(third)
    host_settings.give_back(third)
    assert limit.read_text() == "8192\n"

    limit.write_text("128\n")
    host_settings.remember(first)
    host_settings.allow_machines(first)
    host_settings._inotify_instances = lambda: 65  # those of machines that no lab of ours knows
    host_settings.give_back(first)
    assert limit.read_text() == "8192\n"
    watching = [ctypes.CDLL(None).inotify_init1(0) for _ in range(9)]
    assert min(watching) > 0
    assert count() >= 9


@pytest.mark.lab
@on_its_own_host
def test_a_host_that_forwarded_nothing_forwards_for_every_lab_and_for_nobody_else() -> None:
    FORWARD.write_text("0\n")
    labs = [LabNetwork.claim(Places(name)) for name in (DEFAULT, "b")]
    for one in labs:
        one.up()
    _add_neighbours("outside", "stranger")
    with _listening("outside", 80), _listening("outside", 81):
        for one in labs:
            assert _connects(one.places.namespace, "outside", 80)
            assert not _connects(one.places.namespace, "outside", 81)
        assert not _connects("stranger", "outside", 80)
    labs[0].down()
    with _listening("outside", 80):
        assert _connects(labs[1].places.namespace, "outside", 80)
        assert not _connects("stranger", "outside", 80)


@pytest.mark.lab
@on_its_own_host
def test_neighbours_of_the_host_reach_no_address_of_the_lab() -> None:
    call("ip", "link", "set", "lo", "up")
    made = LabNetwork.claim(PLACES)
    made.up()
    _add_neighbours("outside")
    host, machine = SLOT.host_address, str(SLOT.public_range[4])
    call("ip", "-n", PLACES.namespace, "address", "add", f"{machine}/32", "dev", bridge.BRIDGE)
    with _listening("", 80, host), _listening(PLACES.namespace, 80, machine):
        assert _connects("", host, 80)
        assert _connects("", machine, 80)
        for address in (host, machine):
            assert not _connects("outside", address, 80)
    with _listening("", 80, "203.0.113.1"):
        assert _connects("outside", "203.0.113.1", 80), "what is not the lab's stays open"


@pytest.mark.lab
@on_its_own_host
def test_machines_reach_no_service_of_the_host() -> None:
    made = LabNetwork.claim(PLACES)
    made.up()
    _add_neighbours("outside")
    for address in (SLOT.host_address, "203.0.113.1"):
        with _listening("", 80, address):
            assert not _connects(PLACES.namespace, address, 80)


@pytest.mark.lab
@on_its_own_host
def test_other_users_of_the_host_reach_no_guarded_port_and_no_machine() -> None:
    call("ip", "link", "set", "lo", "up")
    made = LabNetwork.claim(PLACES)
    made.up()
    made.guard(5001)
    machine = str(SLOT.public_range[4])
    call("ip", "-n", PLACES.namespace, "address", "add", f"{machine}/32", "dev", bridge.BRIDGE)
    with _listening("", 5001, "127.0.0.1"), _listening(PLACES.namespace, 80, machine):
        assert connects_as(0, "127.0.0.1", 5001)
        assert connects_as(0, machine, 80)
        assert not connects_as(NOBODY, "127.0.0.1", 5001)
        assert not connects_as(NOBODY, machine, 80)
    with _listening("", 5002, "127.0.0.1"):
        assert connects_as(NOBODY, "127.0.0.1", 5002), "other ports stay open to all"


@pytest.mark.lab
def test_ranges_of_the_lab_never_leave_the_host(up: LabNetwork) -> None:
    up.add_vpc("10.213.0.0/16")
    for address in ("10.213.0.4", "10.213.255.254", "198.19.255.1"):
        assert _host_route(address) == "RTNETLINK answers: No route to host"
    route = f"via {up.slot.inside_address} dev {up.slot.host_link}"
    assert route in _host_route(str(up.slot.public_range[4]))
    assert _own_routes(up) == ["10.213.0.0/16", "198.18.0.0/15", str(up.slot.range)]
    up.remove_vpc("10.213.0.0/16")
    assert _own_routes(up) == ["198.18.0.0/15", str(up.slot.range)]
    up.remove_vpc("10.213.0.0/16")  # once more is fine


@pytest.mark.lab
def test_a_vpc_does_not_take_a_range_in_use(up: LabNetwork) -> None:
    up.add_vpc("10.213.0.0/16")
    with pytest.raises(LabError) as overlap:
        up.add_vpc("10.213.128.0/17")
    assert str(overlap.value) == (
        "VPC range 10.213.128.0/17 overlaps the lab's 10.213.0.0/16;"
        " give the cluster another range (network.cidr), as 10.214.0.0/16"
    )
    resolver = bridge.resolvers()[0]
    with pytest.raises(LabError, match=f"overlaps this machine's resolver {resolver}/32"):
        up.add_vpc(f"{resolver}/32")
    up.add_vpc("10.214.0.0/16")


@pytest.mark.lab
def test_every_subnet_has_its_gateway_on_the_bridge(up: LabNetwork) -> None:
    up.add_vpc("10.213.0.0/16")
    up.add_subnet("10.213.0.0/24")
    up.add_subnet("10.213.16.0/20")
    assert _gateways(up) == ["10.213.0.1/24", "10.213.16.1/20"]
    up.remove_subnet("10.213.0.0/24")
    up.remove_subnet("10.213.0.0/24")  # once more is fine
    assert _gateways(up) == ["10.213.16.1/20"]


@pytest.mark.lab
def test_what_neighbours_say_to_each_other_passes_no_packet_filter(up: LabNetwork) -> None:
    for packets in ("iptables", "ip6tables", "arptables"):
        # -e: a kernel without br_netfilter lacks the setting, and never filters on a bridge
        setting = ("sysctl", "-n", "-e", f"net.bridge.bridge-nf-call-{packets}")
        assert call("nsenter", f"--net=/run/netns/{up.places.namespace}", *setting) in ("", "0\n")


@pytest.mark.lab
@on_its_own_host
def test_a_network_that_fails_to_come_up_leaves_nothing() -> None:
    before = _host()
    with (
        mock.patch.object(LabNetwork, "_inside_rules", lambda _: "no such rule"),
        pytest.raises(LabError, match="nft -f -` failed with exit code 1"),
    ):
        LabNetwork.claim(PLACES).up()
    assert bridge.traces(PLACES) == ()
    assert _host() == before


def _host() -> tuple[str, ...]:
    """All of the host that the lab's network touches."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    # The kernel takes a mount from every namespace when its folder is removed in one of them, so
    # mounts of labs that other tests stop meanwhile vanish here too: only those of /run are ours.
    own = "\n".join(line for line in mounts if line.split()[1].startswith("/run"))
    return FORWARD.read_text(), call("ip", "route"), call("nft", "list", "ruleset"), own


def _host_route(address: str) -> str:
    done = subprocess.run(
        ["ip", "route", "get", address], capture_output=True, text=True, check=False
    )
    return (done.stdout or done.stderr).strip()


def _own_routes(of: LabNetwork) -> list[str]:
    shown = call("ip", "-json", "route", "show", "proto", of.slot.route_protocol)
    return sorted(route["dst"] for route in json.loads(shown))


def _add_neighbours(*names: str) -> None:
    """Namespaces that the host reaches as it reaches other machines, each by a link of its own."""
    for number, name in enumerate(names):
        call("ip", "netns", "add", name)
        call("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        call("ip", "address", "add", f"203.0.113.{4 * number + 1}/30", "dev", name)
        call("ip", "link", "set", name, "up")
        call("ip", "-n", name, "address", "add", f"203.0.113.{4 * number + 2}/30", "dev", "eth0")
        call("ip", "-n", name, "link", "set", "eth0", "up")
        call("ip", "-n", name, "route", "add", "default", "via", f"203.0.113.{4 * number + 1}")


@contextmanager
def _listening(name: str, port: int, address: str = OUTSIDE) -> Iterator[None]:
    """Accept connections in the namespace, on the host where it has no name."""
    argv = [*_inside(name), sys.executable, "-c", LISTENS, address, str(port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        try:
            yield
        finally:
            process.kill()


LISTENS = """
import socket, sys, time
listening = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=16)
print("listening", flush=True)
time.sleep(60)
"""


def _inside(name: str) -> list[str]:
    return ["nsenter", f"--net=/run/netns/{name}"] if name else []


def _connects(name: str, to: str, port: int) -> bool:
    """Whether a connection from the namespace comes about; packets that are dropped say nothing."""
    address = OUTSIDE if to == "outside" else to
    code = f"import socket; socket.create_connection(({address!r}, {port}), 1)"
    argv = [*_inside(name), sys.executable, "-c", code]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def _gateways(of: LabNetwork) -> list[str]:
    shown = call("ip", "-n", of.places.namespace, "-4", "-oneline", "address", "show", "dev", "br0")
    return [line.split()[3] for line in shown.splitlines()]


@pytest.mark.lab
def test_the_metadata_address_answers_inside_the_lab_and_not_on_the_host(up: LabNetwork) -> None:
    with up.listen(METADATA_ADDRESS, 80):
        # Nobody connects from here: where this is a cloud's machine, its own service would answer.
        assert "FEA9FEA9:0050" not in Path("/proc/net/tcp").read_text()
        assert up.slot.host_link not in _host_route(METADATA_ADDRESS)
        call("nsenter", f"--net=/run/netns/{up.places.namespace}", sys.executable, "-c", CONNECTS)
        with pytest.raises(LabError, match=r"^nothing can listen on 169\.254\.169\.254:80 inside"):
            up.listen(METADATA_ADDRESS, 80)


CONNECTS = "import socket; socket.create_connection(('169.254.169.254', 80), 5).close()"
