"""A colleague's machine: no key of gpuctl's, so the user's own keys log in."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.errors import NodeError
from nodes import dial, openssh
from nodes.inventory import Inventory
from nodes.keys import ensure_key
from nodes.login import users_public_keys
from nodes.openssh import write_openssh_config
from nodes.ssh import connect
from tests.nodes.conftest import Site

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The colleague's home, without keys and without an agent."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return home


@pytest.fixture
def agent(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An ssh agent of the colleague's, without keys."""
    path = home / "agent"
    with subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the socket is there
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        yield
        process.terminate()


@pytest.fixture
def theirs(site: Site, home: Path) -> Site:
    """The cluster on the colleague's machine: its pinned host keys, and not its private key."""
    (site.inventory.folder / "id_ed25519").unlink()
    return site


def authorize(site: Site, key: str) -> None:
    authorized = site.inventory.folder.parent / "authorized_keys"
    authorized.write_text(f"{authorized.read_text()}{key}\n")


def answer(inventory: Inventory) -> str:
    async def ask() -> str:
        async with connect(inventory) as connections:
            return (await connections.run(inventory.nodes[1], "echo here")).stdout

    return asyncio.run(ask())


def refusal(inventory: Inventory) -> str:
    with pytest.raises(NodeError) as refused:
        answer(inventory)
    return str(refused.value)


def test_a_key_of_the_users_logs_in_once_it_is_granted(theirs: Site, home: Path) -> None:
    key = ensure_key(home / ".ssh" / "id_ed25519", "ann@laptop")
    assert refusal(theirs.inventory) == (
        "the bastion (127.0.0.1) refused your ssh keys;"
        " ask a member to run `gpuctl grant demo yourkey.pub`"
    )
    authorize(theirs, key)
    assert answer(theirs.inventory) == "here\n"
    path = write_openssh_config(theirs.inventory)
    shell = ["ssh", "-F", str(path), "node1", "echo here"]
    assert subprocess.run(shell, capture_output=True, check=False).stdout == b"here\n"
    openssh.write_hosts(theirs.inventory)
    own = home / ".ssh" / "id_ed25519"
    assert f'  IdentityFile "{own}"\n' in openssh.hosts_file("demo").read_text()
    assert str(theirs.inventory.folder / "id_ed25519") not in path.read_text()


@pytest.mark.usefixtures("agent")
def test_a_key_of_the_ssh_agent_logs_in(theirs: Site, tmp_path: Path) -> None:
    authorize(theirs, ensure_key(tmp_path / "work", "ann@work"))
    subprocess.run(["ssh-add", "-q", str(tmp_path / "work")], check=True)
    assert answer(theirs.inventory) == "here\n"
    shell = ["ssh", "-F", str(write_openssh_config(theirs.inventory)), "node1", "echo here"]
    assert subprocess.run(shell, capture_output=True, check=False).stdout == b"here\n"


@pytest.mark.usefixtures("agent")
def test_the_users_public_keys_are_those_that_log_in(home: Path, tmp_path: Path) -> None:
    assert users_public_keys() == frozenset()
    file = ensure_key(home / ".ssh" / "id_ed25519", "ann@laptop")
    locked = home / ".ssh" / "id_rsa"
    words = ["ssh-keygen", "-q", "-t", "rsa", "-N", "a passphrase", "-f", str(locked)]
    subprocess.run(words, check=True)
    (home / ".ssh" / "id_ecdsa").write_text("nonsense")
    held = ensure_key(tmp_path / "work", "ann@work")
    subprocess.run(["ssh-add", "-q", str(tmp_path / "work")], check=True)
    assert users_public_keys() == {file.split()[1], held.split()[1]}


@pytest.mark.usefixtures("agent")
def test_an_agent_with_too_many_keys_is_named(theirs: Site, tmp_path: Path) -> None:
    for number in range(8):
        ensure_key(tmp_path / f"key{number}", "ann")
        subprocess.run(["ssh-add", "-q", str(tmp_path / f"key{number}")], check=True)
    assert refusal(theirs.inventory) == (
        "the bastion (127.0.0.1) refused the first keys of your ssh agent, and accepts no more"
        " attempts; let the agent have fewer keys (`ssh-add -d`)"
    )


def test_without_any_key_the_way_to_one_is_named(theirs: Site) -> None:
    assert refusal(theirs.inventory) == (
        "there is no key for cluster demo on this machine: neither gpuctl's own key of it, nor one"
        " of yours in ~/.ssh or in an ssh agent; make one with `ssh-keygen -t ed25519`, and ask a"
        " member to run `gpuctl grant demo yourkey.pub`"
    )


def test_gpuctls_own_key_is_the_only_one_where_it_exists(site: Site, home: Path) -> None:
    authorize(site, ensure_key(home / ".ssh" / "id_ed25519", "ann@laptop"))
    (site.inventory.folder / "id_ed25519").unlink()
    ensure_key(site.inventory.folder / "id_ed25519", "another")
    assert refusal(site.inventory) == (
        "the bastion (127.0.0.1) refused the cluster's key;"
        " its authorized_keys changed; see its console, or replace the node"
    )


def test_another_agent_gets_another_broker(theirs: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, values = str(theirs.inventory.folder), theirs.inventory.model_dump(mode="json")
    before = dial.stamp(folder, values)
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/another")
    assert dial.stamp(folder, values) != before


def grant(site: Site, *keys: str) -> None:
    """Write the cluster's record with these granted keys, which the machines accept."""
    grants = [{"key": " ".join(key.split()[:2]), "name": "a name"} for key in keys]
    (site.inventory.folder / "cluster.json").write_text(json.dumps({"grants": grants}))
    for key in keys:
        authorize(site, key)


def agent_key(folder: Path, name: str) -> str:
    key = ensure_key(folder / name, name)
    subprocess.run(["ssh-add", "-q", str(folder / name)], check=True)
    return key


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("place", ["agent", "file"])
def test_the_granted_key_is_offered_first_whatever_else_the_agent_has(
    place: str, theirs: Site, home: Path, tmp_path: Path
) -> None:
    for number in range(8):
        agent_key(tmp_path, f"key{number}")
    if place == "agent":
        key = agent_key(tmp_path, "work")
    else:
        key = ensure_key(home / ".ssh" / "id_rsa", "ann@laptop")  # the last one that ssh tries
        for name in ("id_ed25519", "id_ecdsa"):
            ensure_key(home / ".ssh" / name, "ann@laptop")
    grant(theirs, ensure_key(tmp_path / "colleague", "bob@laptop"), key)
    assert answer(theirs.inventory) == "here\n"
    shell = ["ssh", "-F", str(write_openssh_config(theirs.inventory)), "node1", "echo here"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("here\n", "")


@pytest.mark.usefixtures("agent")
def test_a_revoked_key_is_not_offered(theirs: Site, tmp_path: Path) -> None:
    key = agent_key(tmp_path, "work")
    other = ensure_key(tmp_path / "other", "bob")
    grants = [
        {"key": " ".join(key.split()[:2]), "name": "work", "is_revoked": True},
        {"key": " ".join(other.split()[:2]), "name": "bob"},
    ]
    (theirs.inventory.folder / "cluster.json").write_text(json.dumps({"grants": grants}))
    authorize(theirs, key)
    assert refusal(theirs.inventory) == (
        "the bastion (127.0.0.1) refused your ssh keys;"
        " ask a member to run `gpuctl grant demo yourkey.pub`"
    )
