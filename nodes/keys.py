"""A cluster's ssh keys. gpuctl makes them here and never takes keys from the user's ~/.ssh."""

from pathlib import Path

import asyncssh

from config.errors import NodeError
from config.files import write_whole

_ALGORITHM = "ssh-ed25519"


def generate_pair(comment: str) -> tuple[str, str]:
    """Return a new ed25519 pair: the private key in OpenSSH's format and the public key's line."""
    key = asyncssh.generate_private_key(_ALGORITHM, comment=comment)
    return key.export_private_key().decode(), key.export_public_key().decode().strip()


def public_of(private: str) -> str:
    """Return the public key's line of a private key; NodeError if the text is none."""
    try:
        return asyncssh.import_private_key(private).export_public_key().decode().strip()
    except asyncssh.KeyImportError as error:
        raise NodeError(f"that is not a private key: {error}", "") from error


def ensure_key(path: Path, comment: str) -> str:
    """Make an ed25519 key at `path` for its owner alone, and its public half at `path`.pub.

    A key that is already there stays. Returns the line of the public key. NodeError if the file
    there is not a key, StateError where the disk has no room for it.
    """
    if not path.exists():
        private, _ = generate_pair(comment)
        write_whole(path, private)
    try:
        public = asyncssh.read_private_key(path).export_public_key().decode().strip()
    except (asyncssh.KeyImportError, OSError) as error:
        raise NodeError(
            f"the cluster's key {path} cannot be read: {error}",
            "restore it, or remove the cluster with `gpuctl down` and make it again",
        ) from error
    write_whole(path.with_suffix(".pub"), f"{public}\n")
    return public
