"""User data as EC2 takes it: base64, at most 16 KiB before that."""

import base64
import gzip
import zlib

from config.errors import InputError

LIMIT = 16 * 1024
"""Bytes of user data before base64. Source: AWS, "Run commands when you launch an EC2 instance
with user data input" (EC2 User Guide, 2026-11-20)."""

_PLAIN_LIMIT = LIMIT // 2
"""Up to this size user data stays readable in the console; cloud-init unpacks gzip by itself."""

_GZIP = b"\x1f\x8b"

FILE_SYSTEM = "gpuctl-file-system"
"""Stands in a node's user data for where its shared file system is mounted from.

That is known only when the file system exists: the program puts it in (`mounting`).
"""

LONGEST_SOURCE = "fs-0123456789abcdef0.fsx.ap-northeast-1.amazonaws.com@tcp:/a1b2c3d4"


def insert_mount_source(text: str, source: str) -> str:
    """User data in which `source` is what the nodes mount."""
    return text.replace(FILE_SYSTEM, source)


def encode(text: str, sent: str = "") -> str:
    """Return `text` in base64, compressed where it is large.

    It is `sent`, what EC2 has, where that is the same text: another version of zlib compresses it
    to other bytes. Raises InputError where even the compressed text is over EC2's limit.
    """
    data = text.encode()
    if sent and _decode(sent) == data:
        return sent
    if len(data) > _PLAIN_LIMIT:
        data = gzip.compress(data, mtime=0)
    if len(data) > LIMIT:
        raise InputError(
            f"user data is {len(data)} bytes compressed, EC2 takes {LIMIT}",
            "shorten `setup`: let a command fetch what is long",
        )
    return base64.b64encode(data).decode()


def _decode(sent: str) -> bytes:
    """Return the text that user data stand for; nothing where they cannot be read."""
    try:
        data = base64.b64decode(sent)
        return gzip.decompress(data) if data.startswith(_GZIP) else data
    except (ValueError, OSError, EOFError, zlib.error):
        return b""
