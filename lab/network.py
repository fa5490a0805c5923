"""The lab's network: a namespace with one bridge, that no packet but package downloads leaves.

    host  gpuctl-lab0 198.18.255.1 ── uplink 198.18.255.2  namespace gpuctl-lab
                                                           br0: every subnet's gateway, machines

Every route of ours on the host carries the number `ROUTE_PROTOCOL`, so that what a crash left is
found without a record. Machines' private addresses never appear on the host: the namespace
translates them to its own end of the link, the host translates that to its own address, and lets
only DNS and the web's ports through.
"""

import ctypes
import ipaddress
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from config.errors import LabError
from lab.host import call, succeeds
from lab.places import NAMESPACE, RUNTIME

HOST_ADDRESS = "198.18.255.1"
"""The host's end of the link into the lab."""

API_ADDRESSES = ("127.0.0.1", HOST_ADDRESS)
"""What the lab's API listens on."""

PUBLIC_RANGE = "198.18.0.0/17"
"""Public addresses that the API may give to machines."""

METADATA_ADDRESS = "169.254.169.254"
"""Where machines ask for their instance metadata: an address of the lab's namespace alone."""

BRIDGE = "br0"
HOST_LINK = "gpuctl-lab0"
TABLE = "gpuctl-lab"
ROUTE_PROTOCOL = "218"

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_ETHERTYPE_ARP = 0x0806
_ARP_REQUEST = bytes.fromhex("0001 0800 06 04 0001")  # Ethernet, IPv4, request
_INSIDE_LINK = "uplink"
_INSIDE_ADDRESS = "198.18.255.2"
_OWN_RANGE = "198.18.0.0/15"  # RFC 2544: set aside for tests, routed nowhere
_ROUTED_RANGE = "198.18.0.0/16"
# Inside, what is not the lab's own and not on the internet does not exist: a rehearsal must not
# reach the neighbours of this machine, nor a cloud's metadata service: METADATA_ADDRESS is the
# namespace's own.
_CLOSED_RANGES = (
    "10.0.0.0/8",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    _OWN_RANGE,
)
_INSIDE = (f"--net=/run/netns/{NAMESPACE}",)
_RESOLVER_FILES = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
_NAMESPACES = Path("/run/netns")
"""`ip netns` mounts it for the first namespace, and leaves it."""
_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
_RECORD = RUNTIME / "network.json"


def up() -> None:
    """Namespace, bridge, link, routes and NAT are there; LabError, and none of it, otherwise."""
    forwarded = _remember_forwarding()
    dns = resolvers()
    try:
        _make_namespace()
        _make_link()
        _make_routes(dns)
        call("nsenter", *_INSIDE, "nft", "-f", "-", stdin=_INSIDE_RULES)
        call("nft", "-f", "-", stdin=_host_rules(dns, forwarded))
        _FORWARD.write_text("1\n")
    except LabError:
        down()
        raise


def down() -> None:
    """Nothing of `up` is left, and the host forwards as it did before. A second call is fine."""
    if succeeds("ip", "link", "show", HOST_LINK):
        call("ip", "link", "delete", HOST_LINK)
    if is_up():
        call("ip", "netns", "delete", NAMESPACE)
    if _host_has_rules():
        call("nft", "delete", "table", "ip", TABLE)
    for route in _host_routes():
        call("ip", "route", "delete", *route.split(), "proto", ROUTE_PROTOCOL)
    if _RECORD.exists():
        former = json.loads(_RECORD.read_text())
        _FORWARD.write_text(former["ip_forward"] + "\n")
        if not former["namespaces"] and _namespaces_mounted() and not any(_NAMESPACES.iterdir()):
            call("umount", _NAMESPACES)
        _RECORD.unlink()


def is_up() -> bool:
    """Whether the namespace is there."""
    return (_NAMESPACES / NAMESPACE).exists()


def traces() -> tuple[str, ...]:
    """What of a network of the lab is on this machine, up or left by a crash."""
    found = []
    if is_up():
        found.append(f"network namespace {NAMESPACE}")
    if succeeds("ip", "link", "show", HOST_LINK):
        found.append(f"link {HOST_LINK}")
    if _host_has_rules():
        found.append(f"nftables table {TABLE}")
    found.extend(f"route {route}" for route in _host_routes())
    if _RECORD.exists():
        found.append("changed setting net.ipv4.ip_forward")
    return tuple(found)


def add_vpc(cidr: str) -> None:
    """The range exists in the lab and is unreachable on the host.

    LabError when it overlaps another VPC of the lab or a network that the host itself uses: the
    lab has one bridge, and what is unreachable must not be what this machine lives on.
    """
    vpc = ipaddress.ip_network(cidr)
    assert isinstance(vpc, IPv4Network)
    for other, whose in _used_ranges():
        if vpc.overlaps(other):
            raise LabError(
                f"VPC range {cidr} overlaps {whose} {other}",
                "give the cluster another range (network.cidr), as 10.214.0.0/16",
            )
    call("ip", "route", "add", "unreachable", cidr, "proto", ROUTE_PROTOCOL)
    _ip_inside("route", "add", "unreachable", cidr, "proto", ROUTE_PROTOCOL)


def remove_vpc(cidr: str) -> None:
    """The range is gone; fine when it was not there."""
    if f"unreachable {cidr}" in _host_routes():
        call("ip", "route", "delete", "unreachable", cidr, "proto", ROUTE_PROTOCOL)
    succeeds("ip", "-n", NAMESPACE, "route", "delete", "unreachable", cidr)


def add_subnet(cidr: str) -> None:
    """The bridge has the subnet's first address as its gateway, and forwards to other subnets."""
    _ip_inside("address", "replace", _gateway(cidr), "dev", BRIDGE)
    # The kernel drops the bridge's routes with its last address: with the last subnet before.
    _ip_inside("route", "replace", PUBLIC_RANGE, "dev", BRIDGE)


def remove_subnet(cidr: str) -> None:
    """The gateway is gone; fine when it was not there."""
    succeeds("ip", "-n", NAMESPACE, "address", "delete", _gateway(cidr), "dev", BRIDGE)


def listen(address: str, port: int) -> socket.socket:
    """A TCP socket that listens inside the lab, whoever serves it; LabError when it cannot."""

    def make() -> socket.socket:
        # A thread has a network namespace of its own, and a socket stays where it was made.
        with Path(f"/run/netns/{NAMESPACE}").open("rb") as namespace:
            _enter(namespace.fileno())
        return socket.create_server((address, port), backlog=128)

    with ThreadPoolExecutor(1) as apart:
        try:
            return apart.submit(make).result()
        except OSError as error:
            raise LabError(
                f"nothing can listen on {address}:{port} inside the lab: {error.strerror}",
                "stop the lab and start it again: `gpuctl lab stop`",
            ) from None


def announce(leader: int, address: str) -> bool:
    """Tell every machine that the interface `host0` of the one with process 1 `leader` has the
    address now; return False when it has no such interface yet.

    The lab sends it from the machine's own namespace: systemd-networkd does not announce, and the
    kernel (arp_notify) does only for addresses that are there before their link is up.
    """

    def send() -> bool:
        with Path(f"/proc/{leader}/ns/net").open("rb") as namespace:
            _enter(namespace.fileno())
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
            try:
                link.bind(("host0", _ETHERTYPE_ARP))
            except OSError:
                return False
            mac, ip = link.getsockname()[4], IPv4Address(address).packed
            # RFC 826, RFC 5227: a request for one's own address, to everybody.
            request = _ARP_REQUEST + mac + ip + b"\0" * 6 + ip
            try:
                link.send(b"\xff" * 6 + mac + _ETHERTYPE_ARP.to_bytes(2, "big") + request)
            except OSError:  # the link is down
                return False
        return True

    with ThreadPoolExecutor(1) as apart:
        try:
            return apart.submit(send).result()
        except OSError:  # the machine has ended
            return False


def resolvers() -> tuple[str, ...]:
    """The DNS servers that machines ask: the host's own, IPv4, in its order.

    Where the host asks a resolver on loopback, which is nobody else's, systemd-resolved's list of
    the servers behind it is taken. Empty when there is none that a machine can reach.
    """
    for path in _RESOLVER_FILES:
        servers = _nameservers(path)
        if servers:
            return servers
    return ()


def _enter(namespace: int) -> None:
    """Move the calling thread, and it alone, to the network namespace of the descriptor."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _nameservers(path: Path) -> tuple[str, ...]:
    if not path.exists():
        return ()
    words = [line.split() for line in path.read_text().splitlines()]
    found = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
    return tuple(a for a in found if ":" not in a and not IPv4Address(a).is_loopback)


def _remember_forwarding() -> bool:
    """Whether the host forwarded before the lab; what `down` puts back outlives a crash."""
    if not _RECORD.exists():
        RUNTIME.mkdir(parents=True, exist_ok=True)
        former = {"ip_forward": _FORWARD.read_text().strip(), "namespaces": _namespaces_mounted()}
        _RECORD.write_text(json.dumps(former))
    return str(json.loads(_RECORD.read_text())["ip_forward"]) == "1"


def _used_ranges() -> list[tuple[IPv4Network, str]]:
    """Every range that a VPC must not take, and whose it is."""
    routes = json.loads(call("ip", "-4", "-json", "route", "show", "table", "main"))
    used = [(IPv4Network(address), "this machine's resolver") for address in resolvers()]
    for route in routes:
        if route["dst"] != "default":
            ours = route.get("protocol") == ROUTE_PROTOCOL
            used.append((IPv4Network(route["dst"]), "the lab's" if ours else "this machine's own"))
    return used


def _namespaces_mounted() -> bool:
    # It is mounted on itself, which Path.is_mount does not see.
    return f" {_NAMESPACES} " in Path("/proc/self/mounts").read_text()


def _make_namespace() -> None:
    call("ip", "netns", "add", NAMESPACE)
    _sysctl_inside("net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
    # Subnets share a bridge; a redirect would tell machines to talk past their gateway.
    _sysctl_inside("net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.default.send_redirects=0")
    # Every packet into nowhere is answered, so that nothing in a machine waits for a time-out.
    _sysctl_inside("net.ipv4.ip_forward=1", "net.ipv4.icmp_ratelimit=0")
    _ip_inside("link", "set", "lo", "up")
    _ip_inside("address", "add", f"{METADATA_ADDRESS}/32", "dev", "lo")
    _ip_inside("link", "add", BRIDGE, "type", "bridge")
    _ip_inside("link", "set", BRIDGE, "up")


def _make_link() -> None:
    peer = ("peer", "name", _INSIDE_LINK, "netns", NAMESPACE)
    call("ip", "link", "add", HOST_LINK, "type", "veth", *peer)
    # No link-local IPv6: nothing of the lab speaks it, and the host need not answer to it.
    call("ip", "link", "set", HOST_LINK, "addrgenmode", "none")
    call("ip", "address", "add", f"{HOST_ADDRESS}/30", "dev", HOST_LINK)
    call("ip", "link", "set", HOST_LINK, "up")
    _ip_inside("address", "add", f"{_INSIDE_ADDRESS}/30", "dev", _INSIDE_LINK)
    _ip_inside("link", "set", _INSIDE_LINK, "up")


def _make_routes(dns: tuple[str, ...]) -> None:
    _ip_inside("route", "add", "default", "via", HOST_ADDRESS)
    _ip_inside("route", "add", PUBLIC_RANGE, "dev", BRIDGE)
    for closed in _CLOSED_RANGES:
        _ip_inside("route", "add", "unreachable", closed)
    for server in dns:
        _ip_inside("route", "add", server, "via", HOST_ADDRESS)
    call("ip", "route", "add", "unreachable", _OWN_RANGE, "proto", ROUTE_PROTOCOL)
    call("ip", "route", "add", _ROUTED_RANGE, "via", _INSIDE_ADDRESS, "proto", ROUTE_PROTOCOL)


def _host_routes() -> tuple[str, ...]:
    """The host's routes that are the lab's, as `unreachable 10.213.0.0/16`."""
    listed = json.loads(call("ip", "-json", "route", "show", "proto", ROUTE_PROTOCOL) or "[]")
    return tuple(
        f"{r['type']} {r['dst']}" if r.get("type") == "unreachable" else r["dst"] for r in listed
    )


def _host_has_rules() -> bool:
    return succeeds("nft", "list", "table", "ip", TABLE)


def _ip_inside(*words: str) -> None:
    call("ip", "-n", NAMESPACE, *words)


def _sysctl_inside(*settings: str) -> None:
    # A host without IPv6 lacks its settings, which is as good.
    call("nsenter", *_INSIDE, "sysctl", "-q", "-e", "-w", *settings)


def _gateway(cidr: str) -> str:
    """`10.213.0.1/24` for the subnet `10.213.0.0/24`."""
    subnet = ipaddress.ip_network(cidr)
    return f"{subnet[1]}/{subnet.prefixlen}"


_INSIDE_RULES = f"""
table ip {TABLE} {{
    chain outwards {{
        type nat hook postrouting priority srcnat;
        oifname "{_INSIDE_LINK}" masquerade
    }}
}}
"""


def _host_rules(dns: tuple[str, ...], host_forwarded: bool) -> str:
    """Names and packages may leave the lab, answers may enter it, nothing else passes.

    Where the host forwarded nothing before, it forwards nothing now but for the lab. The segment
    size is clamped because the host's way out may carry smaller packets than the lab's bridge.
    """
    servers = f"ip daddr {{ {', '.join(dns)} }}"
    return f"""
table ip {TABLE} {{
    chain forward {{
        type filter hook forward priority filter; policy {"accept" if host_forwarded else "drop"};
        iifname "{HOST_LINK}" tcp flags syn tcp option maxseg size set rt mtu
        oifname "{HOST_LINK}" tcp flags syn tcp option maxseg size set rt mtu
        oifname "{HOST_LINK}" ct state established,related accept
        oifname "{HOST_LINK}" drop
        iifname "{HOST_LINK}" meta l4proto {{ tcp, udp }} th dport 53 {servers} accept
        iifname "{HOST_LINK}" ct state established,related accept
        iifname "{HOST_LINK}" tcp dport {{ 80, 443 }} accept
        iifname "{HOST_LINK}" drop
    }}
    chain outwards {{
        type nat hook postrouting priority srcnat;
        ip saddr {_INSIDE_ADDRESS} oifname != "{HOST_LINK}" masquerade
    }}
}}
"""
