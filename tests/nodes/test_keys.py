"""Keys that OpenSSH itself accepts."""

import stat
import subprocess
from pathlib import Path

import pytest

from config.errors import NodeError
from nodes.keys import ensure_key, generate_pair


def test_the_key_is_openssh_s_private_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "id_ed25519"
    public = ensure_key(path, "gpuctl demo")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    told = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(path)], capture_output=True, check=True, text=True
    )
    assert told.stdout.strip() == public
    assert public.startswith("ssh-ed25519 ") and public.endswith(" gpuctl demo")
    assert path.with_suffix(".pub").read_text() == f"{public}\n"
    assert ensure_key(path, "another comment") == public


def test_a_file_that_is_no_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "id_ed25519"
    path.write_text("gone wrong")
    with pytest.raises(NodeError, match=rf"^the cluster's key {path} cannot be read: "):
        ensure_key(path, "gpuctl demo")


def test_every_pair_is_new() -> None:
    private, public = generate_pair("nodes")
    assert private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert generate_pair("nodes")[1] != public
