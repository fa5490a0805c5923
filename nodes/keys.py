"""Keys of a cluster's own: made here, never taken from the user's ~/.ssh."""

import os
from pathlib import Path

import asyncssh

from config.errors import NodeError

_ALGORITHM = "ssh-ed25519"


def generate_pair(comment: str) -> tuple[str, str]:
    """A new ed25519 pair: the private key in OpenSSH's format and the public key's line."""
    key = asyncssh.generate_private_key(_ALGORITHM, comment=comment)
    return key.export_private_key().decode(), key.export_public_key().decode().strip()


def ensure_key(path: Path, comment: str) -> str:
    """An ed25519 key is at `path`, readable by its owner alone, its public half beside it (`.pub`).

    A key that is already there stays. Returns the line of the public key. NodeError if the file
    there is not a key.
    """
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        private, _ = generate_pair(comment)
        _write_whole(path, private)
    try:
        public = asyncssh.read_private_key(path).export_public_key().decode().strip()
    except (asyncssh.KeyImportError, OSError) as error:
        raise NodeError(
            f"the cluster's key {path} cannot be read: {error}",
            "restore it, or remove the cluster with `gpuctl down` and make it again",
        ) from error
    _write_whole(path.with_suffix(".pub"), f"{public}\n")
    return public


def _write_whole(path: Path, text: str) -> None:
    """`text` is at `path`, mode 0600, whole or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)
