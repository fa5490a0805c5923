"""The key with which ssh logs in: gpuctl's own key of the cluster, or else keys of the user.

The private key of a cluster stays on the machine that made the cluster. On another machine, to
which a colleague has brought the cluster's record and inventory, the user's ssh agent and the keys
in `~/.ssh` take its place: `gpuctl grant` gives them access. This module does not import asyncssh.
"""

import json
from pathlib import Path

from config.files import write_whole

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


def granted_keys(folder: Path) -> tuple[str, ...]:
    """Return the public keys, `TYPE BASE64`, that may log in to the cluster with this folder.

    They are in the cluster's record, which a team's bucket has too. Empty without a record.
    """
    try:
        grants = json.loads((folder / "cluster.json").read_text()).get("grants", ())
    except (OSError, ValueError):
        return ()
    return tuple(grant["key"] for grant in grants if not grant.get("is_revoked"))


def granted_first(folder: Path) -> list[Path]:
    """Return the user's private keys in `~/.ssh`, those first that the cluster has been granted."""
    granted = granted_keys(folder)
    return sorted(users_keys(), key=lambda path: _public_half(path) not in granted)


def identity_lines(folder: Path) -> str:
    """Return the lines of an ssh_config that choose the key, for a cluster with this folder.

    sshd refuses a client after six keys. If the record has granted keys, ssh offers only those of
    the user's agent that are among them: it takes their public halves, in files next to the record.
    """
    if has_cluster_key(folder):
        key = quoted_path(cluster_key(folder))
        return f"  IdentityFile {key}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
    files = granted_first(folder)
    granted = granted_keys(folder)
    if not granted:
        return "".join(f"  IdentityFile {quoted_path(path)}\n" for path in files)
    own = [path for path in files if _public_half(path) in granted]
    in_files = {_public_half(path) for path in own}
    in_agent = [key for key in granted if key not in in_files]
    # Behind the granted files: of a colleague's key ssh finds no private half, and complains.
    others = [path for path in files if path not in own]
    offered = [*own, *_public_files(folder, in_agent), *others]
    lines = "".join(f"  IdentityFile {quoted_path(path)}\n" for path in offered)
    return f"{lines}  IdentitiesOnly yes\n"


def _public_half(path: Path) -> str:
    """Return the public key, `TYPE BASE64`, in the file next to the private key; empty without."""
    try:
        return " ".join(path.with_name(f"{path.name}.pub").read_text().split()[:2])
    except (OSError, ValueError):
        return ""


def _public_files(folder: Path, keys: list[str]) -> list[Path]:
    """Write each public key into a file of the cluster's folder; return the files."""
    paths = [folder / "granted" / f"{number}.pub" for number in range(len(keys))]
    for path, key in zip(paths, keys, strict=True):
        write_whole(path, f"{key}\n")
    return paths


def quoted_path(path: Path) -> str:
    """Return a path as ssh_config takes it: quoted, with `%` escaped so that it is not a token.

    Quotes and backslashes are escaped as `argv_split` of OpenSSH 8.7 and newer reads them (misc.c).
    """
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
