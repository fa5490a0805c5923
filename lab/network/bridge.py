"""A lab's network: a namespace with one bridge, that no packet but package downloads leaves.

    host  gpuctl-lab0 198.18.255.1 ── uplink 198.18.255.2  namespace gpuctl-lab
                                                           br0: every subnet's gateway, machines

The names and addresses are the default lab's; those of others follow from `lab.places` and
`lab.network.slots`. Every route of a lab on the host carries the number of its slot, so that what a
crash left is found without a record. Machines' private addresses never appear on the host: the
namespace translates them to its own end of the link, the host translates that to its own address,
and lets only DNS and the web's ports through. So two labs may use the same private range.
"""

import ipaddress
import json
import os
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Self

from config.errors import LabError
from config.files import os_errors_as
from lab.host_commands import call, succeeds
from lab.network import host_settings, slots
from lab.network.namespaces import enter_namespace
from lab.network.slots import EVERY_LAB, Slot
from lab.places import Places

METADATA_ADDRESS = "169.254.169.254"
"""Where machines ask for their instance metadata: an address of the lab's namespace alone."""

BRIDGE = "br0"

_BRIDGE_ADDRESS = "02:67:70:75:63:74"  # locally administered
_INSIDE_LINK = "uplink"
_GUARDED = "guarded"
_EVERY_LINK = "gpuctl-lab*"
"""The links of all labs on the host, as nftables matches them."""

# Inside, what is not the lab's own and not on the internet does not exist: a rehearsal must not
# reach the neighbours of this machine, nor a cloud's metadata service: METADATA_ADDRESS is the
# namespace's own.
_CLOSED_RANGES = (
    "10.0.0.0/8",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    str(EVERY_LAB),
)
_RESOLVER_FILES = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))


@dataclass(frozen=True)
class LabNetwork:
    """The network of one lab, up or not."""

    places: Places
    slot: Slot

    @classmethod
    def claim(cls, places: Places) -> Self:
        """Return the lab's network, with addresses that no other lab has until it is down."""
        return cls(places, slots.take(places))

    def up(self) -> None:
        """Make namespace, bridge, link, routes and NAT; LabError, and none of it, otherwise."""
        forwarded = host_settings.remember(self.places)
        dns = resolvers()
        try:
            self._make_namespace()
            self._make_link()
            self._make_routes(dns)
            self._call_inside("nft", "-f", "-", stdin=self._inside_rules())
            call("nft", "-f", "-", stdin=self._host_rules(dns, forwarded))
            host_settings.enable()
        except LabError:
            self.down()
            raise

    def down(self) -> None:
        """Remove all of `up`; the last lab puts the host back. A second call is fine."""
        if succeeds("ip", "link", "show", self.slot.host_link):
            call("ip", "link", "delete", self.slot.host_link)
        if is_up(self.places):
            call("ip", "netns", "delete", self.places.namespace)
        if self._host_has_rules():
            call("nft", "delete", "table", "ip", self.places.table)
        for route in self._host_routes():
            call("ip", "route", "delete", *route.split(), "proto", self.slot.route_protocol)
        host_settings.give_back(self.places)
        slots.release(self.places)

    def traces(self) -> tuple[str, ...]:
        """Return what of the network is on this machine, up or left by a crash."""
        traces = []
        if is_up(self.places):
            traces.append(f"network namespace {self.places.namespace}")
        if succeeds("ip", "link", "show", self.slot.host_link):
            traces.append(f"link {self.slot.host_link}")
        if self._host_has_rules():
            traces.append(f"nftables table {self.places.table}")
        traces.extend(f"route {route}" for route in self._host_routes())
        if host_settings.is_remembered(self.places):
            traces.append("changed settings net.ipv4.ip_forward, fs.inotify.max_user_instances")
        return tuple(traces)

    def add_vpc(self, cidr: str) -> None:
        """Add the range to the lab and make it unreachable on the host.

        LabError when it overlaps another VPC of the lab, which has only one bridge, or a network of
        this machine, which would become unreachable. Other labs may have the same range.
        """
        vpc = ipaddress.ip_network(cidr)
        assert isinstance(vpc, IPv4Network)
        for other, whose in self._used_ranges():
            if vpc.overlaps(other):
                raise LabError(
                    f"VPC range {cidr} overlaps {whose} {other}",
                    "give the cluster another range (network.cidr), as 10.214.0.0/16",
                )
        self._add_host_route("unreachable", cidr)
        self._ip_inside("route", "add", "unreachable", cidr)

    def remove_vpc(self, cidr: str) -> None:
        """Remove the range; fine when it was not there."""
        if f"unreachable {cidr}" in self._host_routes():
            call("ip", "route", "delete", "unreachable", cidr, "proto", self.slot.route_protocol)
        succeeds("ip", "-n", self.places.namespace, "route", "delete", "unreachable", cidr)

    def add_subnet(self, cidr: str) -> None:
        """Give the bridge the subnet's first address: its gateway, also to other subnets."""
        self._ip_inside("address", "replace", _gateway(cidr), "dev", BRIDGE)
        # The kernel drops the bridge's routes with its last address: with the last subnet before.
        self._ip_inside("route", "replace", str(self.slot.public_range), "dev", BRIDGE)

    def remove_subnet(self, cidr: str) -> None:
        """Remove the gateway; fine when it was not there."""
        inside = ("ip", "-n", self.places.namespace)
        succeeds(*inside, "address", "delete", _gateway(cidr), "dev", BRIDGE)

    def listen(self, address: str, port: int) -> socket.socket:
        """Return a TCP socket that listens inside the lab; LabError when nothing can."""

        def make() -> socket.socket:
            # Each thread has a network namespace, and a socket stays where it was made.
            with _namespace(self.places).open("rb") as namespace:
                enter_namespace(namespace.fileno())
            return socket.create_server((address, port), backlog=128)

        with ThreadPoolExecutor(1) as apart:
            problem = f"nothing can listen on {address}:{port} inside the lab"
            remedy = f"stop the lab and start it again: `{self.places.command('stop')}`"
            with os_errors_as(LabError, problem, remedy):
                return apart.submit(make).result()

    def guard(self, port: int) -> None:
        """Refuse connections to the port of loopback to every other user, until `down`."""
        table = ("ip", self.places.table)
        call("nft", "add", "element", *table, _GUARDED, f"{{ {port} }}")

    def _used_ranges(self) -> list[tuple[IPv4Network, str]]:
        """Return every range that a VPC of this lab must not take, and its owner."""
        routes = json.loads(call("ip", "-4", "-json", "route", "show", "table", "main"))
        used = [(IPv4Network(address), "this machine's resolver") for address in resolvers()]
        for route in routes:
            protocol = route.get("protocol")
            ours = protocol == self.slot.route_protocol
            if route["dst"] != "default" and (ours or protocol not in slots.PROTOCOLS):
                whose = "the lab's" if ours else "this machine's own"
                used.append((IPv4Network(route["dst"]), whose))
        return used

    def _make_namespace(self) -> None:
        call("ip", "netns", "add", self.places.namespace)
        for scope in ("all", "default"):
            self._sysctl_inside(f"net.ipv6.conf.{scope}.disable_ipv6=1")
            # Subnets share a bridge; a redirect would make machines bypass their gateway.
            self._sysctl_inside(f"net.ipv4.conf.{scope}.send_redirects=0")
        # Every packet into nowhere is answered, so that nothing in a machine waits for a time-out.
        self._sysctl_inside("net.ipv4.ip_forward=1", "net.ipv4.icmp_ratelimit=0")
        # Machines of a subnet are neighbours. A kernel with br_netfilter would by default track and
        # translate what they say to each other, as if the lab forwarded it.
        for packets in ("iptables", "ip6tables", "arptables"):
            self._sysctl_inside(f"net.bridge.bridge-nf-call-{packets}=0")
        self._ip_inside("link", "set", "lo", "up")
        self._ip_inside("address", "add", f"{METADATA_ADDRESS}/32", "dev", "lo")
        # A bridge without a given address takes the lowest one of its ports. That changes as
        # machines come and go, and their packets to the gateway are lost until they ask anew.
        self._ip_inside("link", "add", BRIDGE, "address", _BRIDGE_ADDRESS, "type", "bridge")
        self._ip_inside("link", "set", BRIDGE, "up")

    def _make_link(self) -> None:
        peer = ("peer", "name", _INSIDE_LINK, "netns", self.places.namespace)
        call("ip", "link", "add", self.slot.host_link, "type", "veth", *peer)
        # No link-local IPv6: nothing of the lab speaks it, and the host need not answer to it.
        call("ip", "link", "set", self.slot.host_link, "addrgenmode", "none")
        call("ip", "address", "add", f"{self.slot.host_address}/30", "dev", self.slot.host_link)
        call("ip", "link", "set", self.slot.host_link, "up")
        self._ip_inside("address", "add", f"{self.slot.inside_address}/30", "dev", _INSIDE_LINK)
        self._ip_inside("link", "set", _INSIDE_LINK, "up")

    def _make_routes(self, dns: tuple[str, ...]) -> None:
        self._ip_inside("route", "add", "default", "via", self.slot.host_address)
        self._ip_inside("route", "add", str(self.slot.public_range), "dev", BRIDGE)
        for closed in _CLOSED_RANGES:
            self._ip_inside("route", "add", "unreachable", closed)
        for server in dns:
            self._ip_inside("route", "add", server, "via", self.slot.host_address)
        self._add_host_route("unreachable", str(EVERY_LAB))
        self._add_host_route(str(self.slot.range), "via", self.slot.inside_address)

    def _add_host_route(self, *route: str) -> None:
        numbers = ("proto", self.slot.route_protocol, "metric", self.slot.metric)
        call("ip", "route", "add", *route, *numbers)

    def _host_routes(self) -> tuple[str, ...]:
        """Return the host's routes that are the lab's, as `unreachable 10.213.0.0/16`."""
        shown = call("ip", "-json", "route", "show", "proto", self.slot.route_protocol)
        listed = json.loads(shown or "[]")
        return tuple(
            f"{r['type']} {r['dst']}" if r.get("type") == "unreachable" else r["dst"]
            for r in listed
        )

    def _host_has_rules(self) -> bool:
        return succeeds("nft", "list", "table", "ip", self.places.table)

    def _ip_inside(self, *words: str) -> None:
        call("ip", "-n", self.places.namespace, *words)

    def _sysctl_inside(self, *settings: str) -> None:
        # A host without IPv6 lacks its settings, which is as good.
        self._call_inside("sysctl", "-q", "-e", "-w", *settings)

    def _call_inside(self, *argv: str, stdin: str | None = None) -> None:
        call("nsenter", f"--net={_namespace(self.places)}", *argv, stdin=stdin)

    def _inside_rules(self) -> str:
        return f"""
table ip {self.places.table} {{
    chain outwards {{
        type nat hook postrouting priority srcnat;
        oifname "{_INSIDE_LINK}" masquerade
    }}
}}
"""

    def _fences(self, servers: str) -> str:
        """Return chains that keep strangers out of the lab, and the lab out of the host.

        Neighbours of the host are stopped before its routing: Linux answers on any link to every
        address that it has. Machines reach nothing of the host but a resolver. Of the host's users
        only the lab's own opens connections to machines and to the ports of `guard`; packets of
        the kernel's own have no user and pass.
        """
        link, user = self.slot.host_link, f"meta skuid != {os.getuid()}"
        return f"""
    set {_GUARDED} {{
        type inet_service;
    }}
    chain arrivals {{
        type filter hook prerouting priority raw;
        iifname != {{ "lo", "{link}" }} ip daddr {self.slot.range} drop
    }}
    chain input {{
        type filter hook input priority filter;
        iifname "{link}" ct state established,related accept
        iifname "{link}" meta l4proto {{ tcp, udp }} th dport 53 {servers} accept
        iifname "{link}" drop
    }}
    chain output {{
        type filter hook output priority filter;
        oifname "{link}" ct state new {user} reject
        oifname "lo" tcp dport @{_GUARDED} {user} reject with tcp reset
    }}"""

    def _host_rules(self, dns: tuple[str, ...], host_forwarded: bool) -> str:
        """Let names and packages leave the lab and answers enter it, and nothing else pass.

        Where the host forwarded nothing before, it forwards nothing now but for labs. Packets of
        other labs are judged by their own tables: an accepting chain does not end the others. The
        segment size is clamped because the host's way out may carry smaller packets than the lab's
        bridge.
        """
        servers = f"ip daddr {{ {', '.join(dns)} }}"
        link = self.slot.host_link
        return f"""
table ip {self.places.table} {{
{self._fences(servers)}
    chain forward {{
        type filter hook forward priority filter; policy {"accept" if host_forwarded else "drop"};
        iifname "{link}" tcp flags syn tcp option maxseg size set rt mtu
        oifname "{link}" tcp flags syn tcp option maxseg size set rt mtu
        oifname "{link}" ct state established,related accept
        oifname "{link}" drop
        iifname "{link}" meta l4proto {{ tcp, udp }} th dport 53 {servers} accept
        iifname "{link}" ct state established,related accept
        iifname "{link}" tcp dport {{ 80, 443 }} accept
        iifname "{link}" drop
        iifname "{_EVERY_LINK}" accept
        oifname "{_EVERY_LINK}" accept
    }}
    chain outwards {{
        type nat hook postrouting priority srcnat;
        ip saddr {self.slot.inside_address} oifname != "{link}" masquerade
    }}
}}
"""


def of(places: Places) -> LabNetwork | None:
    """Return the lab's network, up or left by a crash; None where a lab never had one."""
    slot = slots.held(places)
    return LabNetwork(places, slot) if slot else None


def is_up(places: Places) -> bool:
    """Return whether the lab's namespace exists."""
    return _namespace(places).exists()


def traces(places: Places) -> tuple[str, ...]:
    """Return what of the lab's network is on this machine, up or left by a crash."""
    network = of(places)
    return network.traces() if network else ()


def clear(places: Places) -> None:
    """Remove the lab's network; fine when there is none."""
    if network := of(places):
        network.down()


def resolvers(files: Iterable[Path] = _RESOLVER_FILES) -> tuple[str, ...]:
    """Return the DNS servers that machines ask: the host's own, IPv4, in its order.

    Where the host asks a resolver on loopback, which is nobody else's, systemd-resolved's list of
    the servers behind it is taken. Empty when there is none that a machine can reach.
    """
    for path in files:
        servers = _nameservers(path)
        if servers:
            return servers
    return ()


def _nameservers(path: Path) -> tuple[str, ...]:
    if not path.exists():
        return ()
    words = [line.split() for line in path.read_text().splitlines()]
    addresses = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
    return tuple(a for a in addresses if ":" not in a and not IPv4Address(a).is_loopback)


def _gateway(cidr: str) -> str:
    """Return `10.213.0.1/24` for the subnet `10.213.0.0/24`."""
    subnet = ipaddress.ip_network(cidr)
    return f"{subnet[1]}/{subnet.prefixlen}"


def _namespace(places: Places) -> Path:
    return host_settings.NAMESPACES / places.namespace
