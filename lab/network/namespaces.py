"""Actions of a thread of the lab inside another network namespace."""

import ctypes
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address
from pathlib import Path

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_ETHERTYPE_ARP = 0x0806
_ARP_REQUEST = bytes.fromhex("0001 0800 06 04 0001")  # Ethernet, IPv4, request


def enter_namespace(namespace: int) -> None:
    """Move the calling thread, and it alone, to the network namespace of the descriptor."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def announce(leader: int, address: str) -> bool:
    """Announce that the machine with process 1 `leader` has the address at `host0` now.

    Return False when it has no such interface yet.

    The lab sends it from the machine's own namespace: systemd-networkd does not announce, and the
    kernel (arp_notify) does only for addresses that are there before their link is up.
    """

    def send() -> bool:
        with Path(f"/proc/{leader}/ns/net").open("rb") as namespace:
            enter_namespace(namespace.fileno())
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
