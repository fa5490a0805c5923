"""The passphrases of stacks, which protect nothing: gpuctl keeps no secret in Pulumi."""

import secrets
from pathlib import Path

from config.files import write_new, write_whole
from config.target import Target

SHARED_PASSPHRASE = "gpuctl"  # noqa: S105  (it protects nothing)
SHARED_SETTINGS = (
    "encryptionsalt: v1:MYQ0pHQBVu4=:v1:pHP7r23fvq8GlYkA:G+O74L5EgOGyzMBvODagbs6f0AYHtw==\n"
)
"""A stack's settings as the Pulumi engine writes them for SHARED_PASSPHRASE. The same salt for all
makes every machine's settings fit every stack."""


def passphrase(folder: Path, target: Target) -> str:
    """Return the passphrase of the stack; the folder has its settings and its name.

    The Pulumi engine requires one for every stack, although gpuctl keeps no secret in Pulumi. In a
    bucket it is the same for everybody, so that colleagues can read the stack. The settings decide:
    those of a bucket's stack may be left here when a colleague has removed it.
    """
    settings = folder / f"Pulumi.{folder.name}.yaml"
    if target.bucket is not None and not settings.exists():
        write_whole(settings, SHARED_SETTINGS)
    if settings.exists() and settings.read_text() == SHARED_SETTINGS:
        return SHARED_PASSPHRASE
    return _own_passphrase(target.state / "passphrase")


def _own_passphrase(path: Path) -> str:
    """Return the passphrase of this machine; create it if missing, for its owner only."""
    if not path.exists():
        write_new(path, secrets.token_urlsafe(32))
    return path.read_text()
