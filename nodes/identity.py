"""The key with which ssh logs in: gpuctl's own key of the cluster, or else keys of the user.

The private key of a cluster stays on the machine that made the cluster. On another machine, to
which a colleague has brought the cluster's record and inventory, the user's ssh agent and the keys
in `~/.ssh` take its place: `gpuctl grant` gives them access. This module does not import asyncssh.
"""

from pathlib import Path

_USERS_KEYS = ("id_ed25519", "id_ecdsa", "id_ed25519_sk", "id_ecdsa_sk", "id_rsa")
"""Files of ~/.ssh that ssh tries by default (ssh_config(5), IdentityFile)."""


def cluster_key(folder: Path) -> Path:
    """Return the path of gpuctl's own key of the cluster with this folder."""
    return folder / "id_ed25519"


def has_cluster_key(folder: Path) -> bool:
    """Return whether this machine has gpuctl's own key of the cluster with this folder."""
    return cluster_key(folder).exists()


def users_keys() -> list[Path]:
    """Return the private keys that the user has in `~/.ssh`, of the names that ssh looks for."""
    place = Path.home() / ".ssh"
    return [place / name for name in _USERS_KEYS if (place / name).exists()]


def identity_lines(folder: Path) -> str:
    """Return the lines of an ssh_config that choose the key, for a cluster with this folder."""
    if has_cluster_key(folder):
        own = quoted_path(cluster_key(folder))
        return f"  IdentityFile {own}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
    return "".join(f"  IdentityFile {quoted_path(path)}\n" for path in users_keys())


def quoted_path(path: Path) -> str:
    """Return a path as ssh_config takes it: quoted, with `%` escaped so that it is not a token."""
    return '"' + str(path).replace("%", "%%") + '"'
