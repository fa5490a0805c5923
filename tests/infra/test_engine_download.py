"""The engine of Pulumi's release is used if its sha256 is the pinned one; else it is removed."""

import hashlib
import io
import platform
import socket
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from config.errors import InfraError
from config.progress import silent
from infra.stack.installation import (
    SHA256,
    VERSION,
    Engine,
    engine_version,
    fetch_pinned,
    find_engine,
)
from tests.infra.test_engine import cache, cached

__all__ = ["cache"]  # the fixture

ENGINE = f"#!/bin/sh\necho v{VERSION}\n"


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pulumi's site as a folder, with one archive whose sha256 is pinned; the archive's path."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    folder = tmp_path / "site"
    folder.mkdir()
    archive = folder / f"pulumi-v{VERSION}-{sys.platform}-{machine}.tar.gz"
    pack(archive, "pulumi/pulumi")
    monkeypatch.setitem(SHA256, archive.name, sha256(archive))
    return archive


def pack(archive: Path, member: str) -> None:
    with tarfile.open(archive, "w:gz") as files:
        for name in (member, "pulumi/pulumi-language-go"):
            info = tarfile.TarInfo(name)
            info.size = len(ENGINE)
            files.addfile(info, io.BytesIO(ENGINE.encode()))


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("machine", ["linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64"])
def test_every_archive_of_the_release_has_a_sha256(machine: str) -> None:
    assert len(bytes.fromhex(SHA256[f"pulumi-v{VERSION}-{machine}.tar.gz"])) == 32


def test_the_pinned_release_becomes_the_engine(cache: Path, release: Path) -> None:
    assert find_engine(silent, f"file://{release.parent}") == Engine(
        cached(cache), VERSION, "cache"
    )
    assert engine_version(cached(cache)) == VERSION
    files = cached(cache).parents[1].rglob("*")
    assert sorted(path.name for path in files) == ["bin", "pulumi"]


def test_an_archive_with_another_sha256_is_removed_and_never_run(
    cache: Path, release: Path
) -> None:
    pinned = sha256(release)
    release.write_bytes(b"<html>sign in</html>")
    with pytest.raises(InfraError) as caught:
        find_engine(silent, f"file://{release.parent}")
    assert str(caught.value) == (
        f"Pulumi's engine is not installed (PATH has no `pulumi`, and {cache}/engine has none):"
        f" file://{release} is not the pinned file and was removed: sha256 {sha256(release)}, not"
        f" {pinned}; find out which server or proxy sends another file, or put `pulumi` >="
        f" {VERSION} on PATH, name it in GPUCTL_PULUMI, or build it with `make engine` in gpuctl's"
        " checkout"
    )
    assert [path.name for path in (cache / "engine").iterdir()] == ["lock"]


def test_an_archive_of_another_layout_is_refused(
    cache: Path, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(release, "bin/pulumi")
    monkeypatch.setitem(SHA256, release.name, sha256(release))
    with pytest.raises(InfraError, match=r"\.tar\.gz has no pulumi/pulumi \("):
        find_engine(silent, f"file://{release.parent}")
    assert [path.name for path in (cache / "engine").iterdir()] == ["lock"]


@pytest.fixture
def broken_server() -> Iterator[str]:
    """A server that promises ten bytes and closes after four; its URL."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\nfour")

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/file"
        thread.join()


def test_a_transfer_that_breaks_off_is_an_error(broken_server: str, tmp_path: Path) -> None:
    with pytest.raises(InfraError) as caught:
        fetch_pinned(broken_server, tmp_path / "file", "0" * 64, "file", silent, "try again")
    assert str(caught.value) == (
        f"{broken_server} cannot be downloaded (it ended after 4 of 10 bytes); try again"
    )
    assert list(tmp_path.iterdir()) == []
