"""Host keys on the console, pinned in known_hosts."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nodes.keys import generate_pair
from provision.setup.host_keys import BootingMachine, KnownHosts, read_host_key

KEY = " ".join(generate_pair("root@ip-10-213-128-4")[1].split()[:2])
OTHER = " ".join(generate_pair("root@ip-10-213-128-4")[1].split()[:2])
BEGIN, END = "-----BEGIN SSH HOST KEY KEYS-----", "-----END SSH HOST KEY KEYS-----"
BLOCK = f"{BEGIN}\r\n{KEY} root@ip-10-213-128-4\r\n{END}\r\n"


def test_the_key_is_found_among_everything_else() -> None:
    console = f"[    0.0] Linux\nci-info: | ssh-ed25519 |\n{BLOCK}login: "
    assert read_host_key(console) == KEY


def test_prefixes_of_the_kernel_and_other_keys_do_not_matter() -> None:
    ecdsa = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTY= root@ip"
    console = f"[ 20.1] cloud-init[99]: {BEGIN}\n[ 20.1] cloud-init[99]: {ecdsa}\n"
    console += f"[ 20.1] cloud-init[99]: {KEY} root@ip\n[ 20.1] cloud-init[99]: {END}\n"
    assert read_host_key(console) == KEY


def test_the_last_block_counts() -> None:
    assert read_host_key(BLOCK.replace(KEY, OTHER) + BLOCK) == KEY


@given(st.integers(min_value=0, max_value=len(BLOCK) - len("\r\n") - 1))
def test_a_console_that_ends_early_gives_no_key(length: int) -> None:
    assert read_host_key(BLOCK[:length]) is None


def test_a_key_broken_by_another_message_gives_none() -> None:
    broken = KEY[:40] + "\n[   21.0] eth0: link up\n" + KEY[40:]
    assert read_host_key(f"{BEGIN}\n{broken} root@ip\n{END}\n") is None


def test_pinned_keys_stay_while_their_instances_do(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    bastion = BootingMachine("bastion", "i-b", "198.18.0.3", 2222)
    node = BootingMachine("node0", "i-0", "10.213.128.4")
    known = KnownHosts(path)
    known.pin(node, KEY)
    known.pin(bastion, OTHER)
    assert path.read_text() == (f"10.213.128.4 {KEY} i-0\n[198.18.0.3]:2222 {OTHER} i-b\n")
    again = KnownHosts.read(path, [bastion, node])
    assert (again.key(node), again.key(bastion)) == (KEY, OTHER)


def test_a_replaced_node_with_the_old_address_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    KnownHosts(path).pin(BootingMachine("node0", "i-0", "10.213.128.4"), KEY)
    replacement = BootingMachine("node0", "i-1", "10.213.128.4")
    again = KnownHosts.read(path, [replacement])
    assert again.key(replacement) is None
    again.write()
    assert path.read_text() == ""
