"""A machine with a slow network: `gpuctl lab fault set slow-network demo-node1 10mbit`.

The kernel's token bucket (tbf, tc-tbf(8), 2026-11-22) limits what leaves each end of the machine's
link, so the limit holds for sent and for received packets.
"""

import json

from lab.fault_table import SLOW_NETWORK, read
from lab.host_commands import call, succeeds
from lab.machines import cgroups
from lab.machines.machine_evidence import find_leader
from lab.places import Places

LINK = "host0"
"""The machine's own end of its link, as systemd-nspawn names it."""

_UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_LEAST_BURST = 32 * 1024


def limit_all(places: Places) -> None:
    """Give every machine that runs the speed of the table of faults."""
    for instance_id in cgroups.machines(places):
        limit(places, instance_id)


def limit(places: Places, instance_id: str) -> bool:
    """Give the machine the speed of the table of faults; return False if it has no link yet."""
    leader = find_leader(places, instance_id)
    inside = ("nsenter", f"--net=/proc/{leader}/ns/net")
    if leader is None or not succeeds(*inside, "ip", "link", "show", LINK):
        return False
    # The table is read after the link was seen: of a fault that is set while the machine boots,
    # either this call or that of the command that sets it sees both table and link.
    rate = _rate(places, instance_id)
    peer = json.loads(call(*inside, "ip", "-json", "link", "show", LINK))[0]["link_index"]
    _set(inside, LINK, rate)
    outside = ("nsenter", f"--net=/run/netns/{places.namespace}")
    for link in json.loads(call(*outside, "ip", "-json", "link", "show")):
        if link["ifindex"] == peer:
            _set(outside, link["ifname"], rate)
    return True


def _rate(places: Places, instance_id: str) -> str | None:
    """Return the machine's rate (`10mbit`), None for full speed."""
    *slow, rate = read(places.faults).get(SLOW_NETWORK, ("",))
    return rate if instance_id in slow else None


def _set(namespace: tuple[str, ...], link: str, rate: str | None) -> None:
    if rate is None:
        succeeds(
            *namespace, "tc", "qdisc", "delete", "dev", link, "root"
        )  # no limit: nothing to do
        return
    bytes_per_s = int(rate[:-4]) * _UNITS[rate[-4:]] // 8
    burst = max(_LEAST_BURST, bytes_per_s // 100)
    bucket = ("tbf", "rate", rate, "burst", str(burst), "latency", "100ms")
    call(*namespace, "tc", "qdisc", "replace", "dev", link, "root", *bucket)
