"""A cluster's ssh keys. gpuctl makes them here and never takes keys from the user's ~/.ssh.

Public keys that people name are read, checked, and written as authorized_keys has them. Whoever
names a private key by mistake gets an error without a word of it.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from config.errors import InputError, NodeError
from config.files import read_named_file, write_whole

_ALGORITHM = "ssh-ed25519"


def generate_pair(comment: str) -> tuple[str, str]:
    """Return a new ed25519 pair: the private key in OpenSSH's format and the public key's line."""
    key = asyncssh.generate_private_key(_ALGORITHM, comment=comment)
    return key.export_private_key().decode(), key.export_public_key().decode().strip()


def public_of(private: str) -> str:
    """Return the public key's line of a private key; NodeError if the text is none."""
    try:
        return asyncssh.import_private_key(private).export_public_key().decode().strip()
    except asyncssh.KeyImportError as error:
        raise NodeError(f"that is not a private key: {error}", "") from error


def ensure_key(path: Path, comment: str) -> str:
    """Make an ed25519 key at `path` for its owner alone, and its public half at `path`.pub.

    A key that is already there stays. Returns the line of the public key. NodeError if the file
    there is not a key, StateError where the disk has no room for it.
    """
    if not path.exists():
        private, _ = generate_pair(comment)
        write_whole(path, private)
    try:
        public = asyncssh.read_private_key(path).export_public_key().decode().strip()
    except (asyncssh.KeyImportError, OSError) as error:
        raise NodeError(
            f"the cluster's key {path} cannot be read: {error}",
            "restore it, or remove the cluster with `gpuctl down` and make it again",
        ) from error
    write_whole(path.with_suffix(".pub"), f"{public}\n")
    return public


_ED25519, _RSA, _SK_ED25519 = "ssh-ed25519", "ssh-rsa", "sk-ssh-ed25519@openssh.com"
_ECDSA = tuple(f"ecdsa-sha2-nistp{bits}" for bits in (256, 384, 521))
_SK_ECDSA = "sk-ecdsa-sha2-nistp256@openssh.com"
TYPES = (_ED25519, *_ECDSA, _SK_ED25519, _SK_ECDSA, _RSA)
"""The types of keys that sshd accepts; it no longer accepts ssh-dss (OpenSSH 7.0)."""

_FIELDS = {_ED25519: 2, _RSA: 3, _SK_ED25519: 3, _SK_ECDSA: 4} | dict.fromkeys(_ECDSA, 3)
_ED25519_BYTES = 32
_LEAST_RSA_BITS = 2048
_MOST_BYTES = 1 << 16
_MOST_COMMENT = 200

_PRIVATE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY|PuTTY-User-Key-File")
_EXAMPLE = "a public key is one line, such as `ssh-ed25519 AAAA… ann@laptop`"


@dataclass(frozen=True)
class PublicKey:
    """A public key: its type, its base64 text, and the comment that names its owner."""

    type: str
    blob: str
    comment: str

    @property
    def key(self) -> str:
        """Type and base64 text, without the comment."""
        return f"{self.type} {self.blob}"

    @property
    def fingerprint(self) -> str:
        """The fingerprint as `ssh-keygen -l` prints it."""
        return fingerprint(self.key)

    @property
    def name(self) -> str:
        """The comment; the fingerprint of a key without one."""
        return self.comment or self.fingerprint


def fingerprint(key: str) -> str:
    """Return the fingerprint of `TYPE BASE64` as `ssh-keygen -l` prints it: `SHA256:…`."""
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def is_key_text(text: str) -> bool:
    """Return whether the text is meant as a key, not as a path or a name."""
    words = text.split()
    return (len(words) > 1 and any(word in TYPES for word in words)) or bool(_PRIVATE.search(text))


def read_public_key(path: Path) -> PublicKey:
    """Return the one public key of a file; raise InputError if it has none, or anything else."""
    content = read_named_file(path, "name a public key", _MOST_BYTES)
    half = path.with_name(f"{path.name}.pub")
    public = str(half) if half.exists() else ""
    return parse_public_key(content.decode("utf-8", "replace"), str(path), public)


def parse_public_key(text: str, where: str, public: str = "") -> PublicKey:
    """Return the one public key in the text; raise InputError about `where` for anything else.

    `public` is the path of the public key if `where` may be the private one.
    """
    if _PRIVATE.search(text):
        half = public or "a file whose name ends with .pub"
        raise InputError(
            f"{where} is a private key, which stays with its owner", f"name its public half: {half}"
        )
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if len(lines) != 1:
        count = f"{len(lines)} lines" if lines else "no key"
        raise InputError(f"{where} has {count}, one public key is needed", _EXAMPLE)
    words = lines[0].split(None, 2)
    if words[0] not in TYPES:
        raise _wrong_type(lines[0].split(), where)
    blob = words[1] if len(words) > 1 else ""
    comment = words[2] if len(words) > 2 else ""
    if problem := _blob_problem(words[0], blob):
        raise InputError(f"{where} is not a whole {words[0]} key: {problem}", "copy the file anew")
    if not comment.isprintable() or len(comment) > _MOST_COMMENT:
        raise InputError(
            f"the comment of {where} has control characters, or more than {_MOST_COMMENT} others",
            "`ssh-keygen -c -f KEY` gives the key another comment",
        )
    return PublicKey(words[0], blob, comment)


def _wrong_type(words: Sequence[str], where: str) -> InputError:
    """Return the error for a line that does not begin with a type of key that is accepted."""
    if "-cert-v" in words[0]:
        return InputError(f"{where} is a certificate, not a key", "name the public key it is for")
    if words[0] == "ssh-dss":
        return InputError(
            f"{where} is a DSA key, which sshd does not accept", "`ssh-keygen -t ed25519` makes one"
        )
    if any(word in TYPES for word in words):
        return InputError(
            f"{where} has options in front of the key, which gpuctl does not grant",
            f"remove them: {_EXAMPLE}",
        )
    return InputError(f"{where} is not a public ssh key", _EXAMPLE)


def _blob_problem(kind: str, blob: str) -> str:
    """Return what is wrong with the base64 text of a key of that type; empty if nothing."""
    try:
        fields = _fields(base64.b64decode(blob, validate=True))
    except (binascii.Error, ValueError):
        return "its text is cut off or changed"
    if not fields or fields[0] != kind.encode() or len(fields) != _FIELDS[kind]:
        return "its text is of another type"
    if kind in (_ED25519, _SK_ED25519) and len(fields[1]) != _ED25519_BYTES:
        return f"it has {len(fields[1])} bytes instead of {_ED25519_BYTES}"
    bits = int.from_bytes(fields[2], "big").bit_length() if kind == _RSA else _LEAST_RSA_BITS
    if bits < _LEAST_RSA_BITS:
        return f"it has {bits} bits, at least {_LEAST_RSA_BITS} are needed"
    return ""


def _fields(data: bytes) -> list[bytes]:
    """Return the strings of a key (RFC 4251, section 5); ValueError if the last one is cut off."""
    fields = []
    while data:
        size = int.from_bytes(data[:4], "big")
        field, data = data[4 : 4 + size], data[4 + size :]
        if len(field) != size or not field:
            raise ValueError
        fields.append(field)
    return fields
