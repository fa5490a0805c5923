"""How a colleague's machine gets the key of the nodes: from a node, over a real sshd."""

import asyncio
import re
from pathlib import Path

import pytest

from config.errors import InputError
from nodes.keys import ensure_key, generate_pair
from nodes.ssh import connect
from provision.setup.nodes_key import NodesKey, ensure_nodes_key, nodes_key
from tests.nodes.conftest import Site

GRANTED = "ssh-ed25519 AAAA ann@laptop (granted by gpuctl)"


@pytest.fixture
def homes(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The `.ssh` of root on both nodes; the user logs in with a key of his or her own."""
    own = tmp_path / "home" / ".ssh" / "id_ed25519"
    own.parent.mkdir(parents=True)
    (site.inventory.folder / "id_ed25519").rename(own)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / "authorized_keys").write_text(
        f'command="eval \\"$SSH_ORIGINAL_COMMAND\\"" {ensure_key(own, "")}\n'
    )
    folders = tmp_path / "sshd1" / ".ssh", tmp_path / "sshd2" / ".ssh"
    for folder in folders:
        folder.mkdir()
        (folder / "authorized_keys").write_text(f"ssh-ed25519 BBBB gpuctl demo\n{GRANTED}\n")
    return folders


def test_a_node_gives_the_key_which_then_logs_in_to_all_of_them(
    site: Site, homes: tuple[Path, Path], tmp_path: Path
) -> None:
    private, public = generate_pair("gpuctl demo nodes")
    (homes[0] / "id_ed25519").write_text(generate_pair("other")[0])
    (homes[1] / "id_ed25519").write_text(private)
    key = nodes_key(site.inventory, public)
    assert key == NodesKey(private, public, (GRANTED,), is_from_node=True)
    assert not (site.inventory.folder / "nodes_ed25519").exists()

    with (tmp_path / "authorized_keys").open("a") as file:
        file.write(f"{public}\n")
    ask, nodes = "echo forced: $SSH_ORIGINAL_COMMAND", site.inventory.nodes

    async def answers() -> list[str]:
        async with connect(site.inventory, key.private) as connections:
            return [(await connections.run(node, ask)).stdout for node in nodes]

    assert asyncio.run(answers()) == ["forced:\n", "forced:\n"], "the own key has a command"


def test_without_a_node_that_has_the_key_new_machines_are_refused(
    site: Site, homes: tuple[Path, Path]
) -> None:
    other, public = generate_pair("other")[0], generate_pair("gpuctl demo nodes")[1]
    for text, why in (
        (other, r"node[01]: its ~/\.ssh/id_ed25519 is not the key of the nodes"),
        ("nonsense", "that is not a private key: .*"),
        (None, r"node[01]: cat: \S+: No such file or directory"),
    ):
        for home in homes:
            (home / "id_ed25519").unlink(missing_ok=True)
            if text is not None:
                (home / "id_ed25519").write_text(text)
        with pytest.raises(InputError) as refused:
            nodes_key(site.inventory, public)
        assert refused.value.hint == "run this command on the machine that created the cluster"
        told = (
            "new machines of cluster demo cannot be opened from this machine: no node gives it the"
            " nodes' key: "
        )
        assert re.fullmatch(re.escape(told) + why, refused.value.message)


def test_a_bastion_that_does_not_answer_lets_no_node_give_the_key(
    site: Site, homes: tuple[Path, Path]
) -> None:
    site.bastion.stop()
    with pytest.raises(InputError) as refused:
        nodes_key(site.inventory, generate_pair("gpuctl demo nodes")[1])
    assert str(refused.value) == (
        "new machines of cluster demo cannot be opened from this machine: no node gives it the"
        " nodes' key: the bastion (127.0.0.1) cannot be reached: Connection refused; run this"
        " command on the machine that created the cluster"
    )


def test_no_other_node_can_give_the_key(site: Site, homes: tuple[Path, Path]) -> None:
    alone = site.inventory.model_copy(update={"nodes": ()})
    with pytest.raises(InputError, match="the nodes' key: it has no other nodes; run this"):
        nodes_key(alone, generate_pair("gpuctl demo nodes")[1])


def test_the_creators_machine_has_the_key_itself(site: Site, homes: tuple[Path, Path]) -> None:
    folder = site.inventory.folder
    (folder / "id_ed25519").touch()
    made = nodes_key(site.inventory, "another")
    assert made == ensure_nodes_key(folder, "demo")
    assert (folder / "nodes_ed25519").read_text() == made.private
