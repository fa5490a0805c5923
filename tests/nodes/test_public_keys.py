"""Public keys that people name, and what is refused with which words."""

import base64
import os
import subprocess
from pathlib import Path

import asyncssh
import pytest

from config.errors import InputError
from nodes.keys import is_key_text, parse_public_key, read_public_key

ANN = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGGFOFIvHoF4iCx7xRBvo0dVUTlZ9r3Jm2B0c4TvsM6a ann@laptop"
BLOB = ANN.split()[1]
EXAMPLE = "a public key is one line, such as `ssh-ed25519 AAAA… ann@laptop`"


def refusal(text: str, public: str = "") -> str:
    with pytest.raises(InputError) as refused:
        parse_public_key(text, "ann.pub", public)
    assert refused.value.exit_code == 2
    return str(refused.value)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ssh-ed25519", {}),
        ("ecdsa-sha2-nistp256", {}),
        ("ecdsa-sha2-nistp384", {}),
        ("ecdsa-sha2-nistp521", {}),
        ("ssh-rsa", {"key_size": 2048}),
    ],
)
def test_a_key_is_read_as_ssh_keygen_reads_it(
    tmp_path: Path, kind: str, options: dict[str, int]
) -> None:
    made = asyncssh.generate_private_key(kind, comment="Ann Lee", **options)
    path = tmp_path / "ann.pub"
    path.write_bytes(b"# mine\r\n\r\n  " + made.export_public_key().strip() + b" \r\n")
    key = read_public_key(path)
    assert (key.type, key.comment, key.name) == (kind, "Ann Lee", "Ann Lee")
    assert key.fingerprint == made.get_fingerprint()
    assert f"{key.key} Ann Lee" == made.export_public_key().decode().strip()


def test_a_key_without_a_comment_has_the_name_of_its_fingerprint() -> None:
    key = parse_public_key(f"ssh-ed25519 {BLOB}", "ann.pub")
    assert key.name == key.fingerprint
    assert key.fingerprint.startswith("SHA256:")


def test_a_private_key_is_refused_without_a_word_of_it(tmp_path: Path) -> None:
    private = tmp_path / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(private)], check=True)
    with pytest.raises(InputError) as refused:
        read_public_key(private)
    assert str(refused.value) == (
        f"{private} is a private key, which stays with its owner;"
        f" name its public half: {private}.pub"
    )
    assert refusal(private.read_text()) == (
        "ann.pub is a private key, which stays with its owner;"
        " name its public half: a file whose name ends with .pub"
    )
    assert refusal("PuTTY-User-Key-File-3: ssh-ed25519\n").startswith("ann.pub is a private key")


def test_what_is_not_one_plain_key_is_refused() -> None:
    assert refusal("") == f"ann.pub has no key, one public key is needed; {EXAMPLE}"
    assert refusal(f"{ANN}\n{ANN}\n") == (
        f"ann.pub has 2 lines, one public key is needed; {EXAMPLE}"
    )
    assert refusal(f'command="rm -rf /",no-pty {ANN}') == (
        "ann.pub has options in front of the key, which gpuctl does not grant;"
        f" remove them: {EXAMPLE}"
    )
    assert refusal("hello world") == f"ann.pub is not a public ssh key; {EXAMPLE}"
    assert refusal(f"ssh-ed25519-cert-v01@openssh.com {BLOB}") == (
        "ann.pub is a certificate, not a key; name the public key it is for"
    )
    assert refusal("ssh-dss AAAA") == (
        "ann.pub is a DSA key, which sshd does not accept; `ssh-keygen -t ed25519` makes one"
    )
    assert refusal(f"{ANN}\x1b[2J") == (
        "the comment of ann.pub has control characters, or more than 200 others;"
        " `ssh-keygen -c -f KEY` gives the key another comment"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ssh-ed25519", "its text is of another type"),
        (f"ssh-ed25519 {BLOB[:-4]}", "its text is cut off or changed"),
        (f"ssh-ed25519 {BLOB[:-1]}", "its text is cut off or changed"),
        (f"ssh-ed25519 {BLOB[:-2]}!a", "its text is cut off or changed"),
        (f"ecdsa-sha2-nistp256 {BLOB}", "its text is of another type"),
    ],
)
def test_a_key_that_is_not_whole_is_refused(text: str, problem: str) -> None:
    kind = text.split(maxsplit=1)[0]
    assert refusal(text) == f"ann.pub is not a whole {kind} key: {problem}; copy the file anew"


def blob(*fields: bytes) -> str:
    """The base64 text of a key with these fields (RFC 4251, section 5)."""
    return base64.b64encode(b"".join(len(f).to_bytes(4, "big") + f for f in fields)).decode()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("sk-ssh-ed25519@openssh.com", (b"k" * 32, b"ssh:")),
        ("sk-ecdsa-sha2-nistp256@openssh.com", (b"nistp256", b"point", b"ssh:")),
    ],
)
def test_the_key_of_a_hardware_token_is_read(kind: str, fields: tuple[bytes, ...]) -> None:
    """Their fields: PROTOCOL.u2f of OpenSSH."""
    text = f"{kind} {blob(kind.encode(), *fields)} ann@token"
    assert parse_public_key(text, "ann.pub").type == kind


def test_an_ed25519_key_has_32_bytes() -> None:
    assert "key: it has 31 bytes instead of 32;" in refusal(
        f"ssh-ed25519 {blob(b'ssh-ed25519', b'k' * 31)}"
    )


def test_a_short_rsa_key_is_refused() -> None:
    short = asyncssh.generate_private_key("ssh-rsa", key_size=1024).export_public_key().decode()
    assert "it has 1024 bits, at least 2048 are needed" in refusal(short)


def test_files_that_cannot_be_keys_end_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"a" * 100_000)
    said = {}
    for name in ("pipe", "large", "absent", "."):
        with pytest.raises(InputError) as refused:
            read_public_key(tmp_path / name)
        said[name] = str(refused.value)
    assert said == {
        "pipe": f"{tmp_path}/pipe cannot be read: it is a pipe, not a regular file;"
        " name a public key",
        "large": f"{tmp_path}/large has more than 64 KiB; is it the right file?",
        "absent": f"{tmp_path}/absent cannot be read: No such file or directory; name a public key",
        ".": f"{tmp_path} cannot be read: Is a directory; name a public key",
    }


def test_the_text_of_a_key_is_no_name() -> None:
    assert is_key_text(ANN)
    assert is_key_text(f'command="x" {ANN}')
    assert is_key_text("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert not is_key_text("ann@laptop")
    assert not is_key_text("Ann Lee")
    assert not is_key_text("ssh-ed25519")
