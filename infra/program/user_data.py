"""User data in EC2's form: base64, at most 16 KiB before the encoding."""

import base64
import gzip
import zlib

from config.errors import InputError

LIMIT = 16 * 1024
"""The most bytes of user data before base64. Source: AWS, "Run commands when you launch an EC2
instance with user data input" (EC2 User Guide, 2026-11-20)."""

_PLAIN_LIMIT = LIMIT // 2
"""Up to this size user data is not compressed, so that the console shows it. cloud-init unpacks
gzip."""

_GZIP = b"\x1f\x8b"

FILE_SYSTEM = "gpuctl-file-system"
"""The placeholder in a node's user data for the source of its shared file system.

The source is known only when the file system exists; the program inserts it then
(`insert_mount_source`).
"""

LONGEST_SOURCE = "fs-0123456789abcdef0.fsx.ap-northeast-1.amazonaws.com@tcp:/a1b2c3d4"


def insert_mount_source(text: str, source: str) -> str:
    """Return the user data with `source` as the file system that the nodes mount."""
    return text.replace(FILE_SYSTEM, source)


def encode(text: str, sent: str = "") -> str:
    """Return `text` in base64, compressed if it is large.

    `sent` is the encoded text in EC2. It is returned if it has the same text, because another
    version of zlib compresses to other bytes. Raises InputError if the compressed text is over
    EC2's limit.
    """
    data = text.encode()
    if sent and _decode(sent) == data:
        return sent
    if len(data) > _PLAIN_LIMIT:
        data = gzip.compress(data, mtime=0)
    if len(data) > LIMIT:
        raise InputError(
            f"user data has {len(data)} bytes after compression, EC2 allows {LIMIT}",
            "shorten `setup`: let a command of it download long files",
        )
    return base64.b64encode(data).decode()


def _decode(sent: str) -> bytes:
    """Return the decoded text of user data, empty if they cannot be decoded."""
    try:
        data = base64.b64decode(sent)
        return gzip.decompress(data) if data.startswith(_GZIP) else data
    except (ValueError, OSError, EOFError, zlib.error):
        return b""
