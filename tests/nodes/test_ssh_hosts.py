"""A cluster's hosts in the user's ssh settings, used by the real ssh and scp."""

import subprocess
from pathlib import Path

import pytest

from nodes import openssh
from nodes.inventory import Inventory
from tests.nodes.conftest import Site


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def ssh(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """`ssh` with the settings of that home: it finds its own user's by /etc/passwd."""
    config = str(home / ".ssh" / "config")
    return subprocess.run(
        [words[0], "-F", config, *words[1:]],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_ssh_and_scp_reach_a_node_by_its_clusters_name(site: Site, home: Path) -> None:
    config = openssh.user_config()
    config.parent.mkdir()
    config.write_text("Host other\n  HostName 192.0.2.1\n")
    assert not openssh.has_include(config)
    openssh.add_include(config)
    assert openssh.has_include(config)
    path = openssh.write_hosts(site.inventory)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    name = f"{site.inventory.cluster}-node1"
    done = ssh(home, "ssh", name, "echo $SSH_CONNECTION")
    assert done.stderr == ""
    assert done.stdout.split()[3] == str(site.nodes[1].port)
    # The test's sshd has no sftp, which scp uses without -O.
    (home / "file").write_text("travels\n")
    copied = ssh(home, "scp", "-O", str(home / "file"), f"{name}:{home}/copy")
    assert (copied.returncode, (home / "copy").read_text()) == (0, "travels\n")
    # A host of the user's is as it was, and a key that is not pinned is refused.
    assert "hostname 192.0.2.1" in ssh(home, "ssh", "-G", "other").stdout
    assert "stricthostkeychecking ask" in ssh(home, "ssh", "-G", "other").stdout
    (site.inventory.folder / "known_hosts").write_text("")
    assert "Host key verification failed." in ssh(home, "ssh", name, "true").stderr


def an_inventory(folder: Path) -> Inventory:
    return Inventory.model_validate(
        {
            "cluster": "demo",
            "region": "us-east-1",
            "zone": "us-east-1a",
            "instance_type": "p4d.24xlarge",
            "bastion": None,
            "nodes": [
                {"rank": 0, "name": "node0", "instance_id": "i-1", "private_ip": "10.0.0.5",
                 "gpus": 8, "slots": 8},
            ],
            "folder": str(folder),
        }
    )  # fmt: skip


def test_only_its_own_cluster_changes_and_removes_a_file(home: Path, tmp_path: Path) -> None:
    mine, other = an_inventory(tmp_path / "aws"), an_inventory(tmp_path / "lab")
    openssh.refresh_hosts(mine)
    assert not openssh.hosts_file("demo").exists()
    path = openssh.write_hosts(mine)
    assert path == home / ".ssh" / "gpuctl" / "demo.conf"
    before = path.read_text()
    openssh.refresh_hosts(other)
    assert not openssh.remove_hosts("demo", other.folder)
    assert path.read_text() == before
    moved = mine.nodes[0].model_copy(update={"private_ip": "10.0.0.9"})
    openssh.refresh_hosts(mine.model_copy(update={"nodes": (moved,)}))
    assert "HostName 10.0.0.9" in path.read_text()
    assert openssh.remove_hosts("demo", mine.folder)
    assert not path.exists()
    assert not openssh.remove_hosts("demo", mine.folder)


def test_the_line_is_above_every_host_and_a_link_stays_one(home: Path) -> None:
    dotfiles = home / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "ssh").write_text("# mine\nHost *\n  User me\n")
    (home / ".ssh").mkdir()
    config = openssh.user_config()
    config.symlink_to(dotfiles / "ssh")
    openssh.add_include(config)
    assert config.is_symlink()
    line = f'Include "{home}/.ssh/gpuctl/*.conf"'
    assert config.read_text() == f"{line}\n# mine\nHost *\n  User me\n"
    config.write_text(f"Host *\n  User me\n{line}\n")
    assert not openssh.has_include(config), "there it counts within the host alone"


def test_session_manager(home: Path, tmp_path: Path) -> None:
    through = an_inventory(tmp_path).model_copy(update={"proxy": ("gpuctl", "100%", "ssm-proxy")})
    assert "  ProxyCommand gpuctl 100%% ssm-proxy i-1\n" in openssh.hosts_text(through)
