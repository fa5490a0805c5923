"""How a connection logs in to a machine of a cluster, and what is wrong when it cannot."""

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import asyncssh

from config.command_text import command_text
from config.errors import NodeError
from config.event_loop import run_in_loop
from nodes.identity import (
    cluster_key,
    granted_first,
    granted_keys,
    has_cluster_key,
    users_keys,
)
from nodes.inventory import Inventory

_TOO_MANY = "Too many authentication failures"
"""What sshd says after MaxAuthTries keys, six by default (auth.c of OpenSSH 9.2)."""


def login_options(inventory: Inventory, private_key: str = "") -> dict[str, Any]:
    """Return the options of asyncssh with which a connection logs in.

    `private_key` in OpenSSH's format is used instead of this machine's keys. Raises NodeError if
    this machine has no key at all.
    """
    folder = inventory.folder
    if private_key or has_cluster_key(folder):
        client_key = (
            asyncssh.import_private_key(private_key) if private_key else str(cluster_key(folder))
        )
        return {"agent_path": None, "client_keys": [client_key], "client_certs": ()}
    if not (users_keys() or os.environ.get("SSH_AUTH_SOCK")):
        raise NodeError(
            f"there is no key for cluster {inventory.cluster} on this machine: neither gpuctl's own"
            " key of it, nor one of yours in ~/.ssh or in an ssh agent",
            f"make one with `ssh-keygen -t ed25519`, and {_ask(inventory.cluster)}",
        )
    granted = [base64.b64decode(key.split()[1]) for key in granted_keys(folder)]
    if not granted:
        return {}  # asyncssh then takes the user's agent and the usual files of ~/.ssh
    # sshd refuses a client after six keys: of the agent's only the granted ones are offered.
    files = [str(path) for path in granted_first(folder)]
    options: dict[str, Any] = {"agent_identities": granted, "ignore_encrypted": True}
    return options | ({"client_keys": files} if files else {})


def users_public_keys() -> frozenset[str]:
    """Return the public halves of the keys that log in where gpuctl's own key is missing.

    They are in base64, without their type. Keys of files with a passphrase are left out: only an
    agent uses those.
    """
    key_pairs = run_in_loop(_users_key_pairs())
    return frozenset(base64.b64encode(path.public_data).decode() for path in key_pairs)


async def _users_key_pairs() -> list[asyncssh.SSHKeyPair]:
    key_pairs: list[asyncssh.SSHKeyPair] = []
    for path in users_keys():
        with suppress(OSError, asyncssh.KeyImportError):  # a file that ssh cannot use either
            key_pairs += asyncssh.load_keypairs(str(path), ignore_encrypted=True)
    if os.environ.get("SSH_AUTH_SOCK"):
        with suppress(OSError, ValueError):  # no agent is there, or one that hangs up
            async with asyncssh.connect_agent() as agent:
                key_pairs += await agent.get_keys()
    return key_pairs


@contextmanager
def login_errors(where: str, inventory: Inventory) -> Iterator[None]:
    """Raise NodeError if the machine `where` refuses the key, or if the key cannot be used."""
    is_own, name = has_cluster_key(inventory.folder), inventory.cluster
    try:
        yield
    except asyncssh.PermissionDenied as error:
        if is_own:
            remedy = (
                "see its console, or replace the node"
                if inventory.is_rented
                else "`gpuctl up FILE` writes it again"
            )
            raise NodeError(
                f"{where} refused the cluster's key", f"its authorized_keys changed; {remedy}"
            ) from error
        raise NodeError(f"{where} refused your ssh keys", _ask(name)) from error
    except asyncssh.KeyImportError as error:
        raise NodeError(
            f"{where}: the cluster's key cannot be used: {error}",
            "restore id_ed25519 in the cluster's folder",
        ) from error
    except asyncssh.DisconnectError as error:
        if is_own or _TOO_MANY not in error.reason:
            raise
        raise NodeError(
            f"{where} refused the first keys of your ssh agent, and accepts no more attempts",
            "let the agent have fewer keys (`ssh-add -d`)",
        ) from error


def _ask(cluster: str) -> str:
    return f"ask a member to run {command_text('gpuctl grant {} yourkey.pub', cluster)}"
