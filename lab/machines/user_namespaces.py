"""User namespaces of machines: a machine's root is an ordinary user of the host.

Each machine has 65536 user ids of the host, and its files have these ids. systemd-nspawn alone
would change the owner of every file of a root, which copies each into the machine's overlay
(systemd 252 cannot shift an overlay's ids: "ID mapped mounts are apparently not available"). Here
the image below the overlay is mounted with its ids shifted (mount_setattr(2), MOUNT_ATTR_IDMAP;
layers of overlays may be such mounts since Linux 5.19), which costs nothing.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from config.errors import LabError
from config.files import os_errors_as

IDS = 65536
"""The number of users of a machine, `nobody` (65534) among them."""

# systemd keeps these ids for containers ("Users, Groups, UIDs and GIDs", systemd.io, read
# 2026-11-22).
_FIRST, _LAST = 0x80000, 0x6FFF0000

# linux/mount.h, linux/fcntl.h and the numbers of system calls, alike on x86_64 and arm64.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_READ_ONLY = 1  # MOUNT_ATTR_RDONLY
_MOUNT_ATTR_IDMAP = 0x00100000
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000


class _Attributes(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")
    ]


def first_id(machine: str) -> int:
    """Return the host's user id of the machine's root; always the same one for a machine."""
    return _FIRST + crc32(machine.encode()) % ((_LAST - _FIRST) // IDS + 1) * IDS


def mount_shifted(folder: Path, at: Path, first: int) -> None:
    """Mount `folder` at `at` read-only, its ids shifted to `first` and above.

    LabError if the kernel or the folder's file system cannot do that.
    """
    with _user_namespace(first) as users:
        hint = "the lab needs Linux 5.19 or later and its images on ext4, xfs or btrfs"
        with os_errors_as(LabError, f"{folder} cannot be mounted with shifted user ids", hint):
            tree = _call(_OPEN_TREE, _AT_FDCWD, str(folder).encode(), _OPEN_TREE_CLONE)
            try:
                attributes = _Attributes(attr_set=_READ_ONLY | _MOUNT_ATTR_IDMAP, userns_fd=users)
                size = ctypes.sizeof(attributes)
                _call(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(attributes), size)
                place = str(at).encode()
                _call(_MOVE_MOUNT, tree, b"", _AT_FDCWD, place, _MOVE_MOUNT_F_EMPTY_PATH)
            finally:
                os.close(tree)


@contextmanager
def _user_namespace(first: int) -> Iterator[int]:
    """Create a user namespace that maps 0 to `first`, and give its descriptor."""
    with subprocess.Popen(
        ["unshare", "--user", "sh", "-c", "echo; read -r _"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()  # it is in its namespace now
        for ids in ("uid_map", "gid_map"):
            Path(f"/proc/{holder.pid}/{ids}").write_text(f"0 {first} {IDS}\n")
        descriptor = os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _call(number: int, *arguments: object) -> int:
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *words))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
