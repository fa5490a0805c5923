"""What a process of heartbeats and its owner share: reports, memory, sockets."""

from __future__ import annotations

import contextlib
import socket
import struct

BEAT_S = 1.0
SILENT = b"silent "  # a worker's process reports this, and how often it has turned to another head
STEP = b"clock "  # a worker's process reports this, and by how many seconds the clock was set
REPORT_BYTES = 1024  # more than a report or an order has
NUMBER = struct.Struct("=Q")  # of a worker's last beat
LIFE = struct.Struct("=d")  # the supervisor's last sign of life, on the monotonic clock
HEARD = struct.Struct("=dQ4sH")  # time of day, number of the beat, address and port of its sender
_INTERACTIVE = 6  # TC_PRIO_INTERACTIVE (linux/pkt_sched.h): sent before the job's bulk data
# For a beat of 2,048 nodes at once: the kernel counts 768 bytes for a datagram, and its default of
# 208 KiB (net.core.rmem_default) holds 277.
_UNREAD_BYTES = 2 << 20
_SO_RCVBUFFORCE = 33  # socket(7): beyond rmem_max, with CAP_NET_ADMIN
_SO_PRIORITY = 12  # socket(7); PyPy does not name it


def open_socket() -> socket.socket:
    """Return a UDP socket that never blocks."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, _SO_PRIORITY, _INTERACTIVE)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD_BYTES)  # at most rmem_max
    with contextlib.suppress(OSError):  # without CAP_NET_ADMIN
        made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _UNREAD_BYTES)
    return made
