"""A released engine is used if its sha256 is the pinned one; any other file is removed."""

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
from config.progress import Progress, silent
from infra.pulumi_engine import download, pinned_downloads
from infra.pulumi_engine.download import download_engine
from infra.pulumi_engine.go_toolchain import VERSION as GO_VERSION
from infra.pulumi_engine.installation import (
    VERSION,
    Engine,
    engine_version,
    find_engine,
    install_built_engine,
    install_release,
)
from infra.pulumi_engine.pinned_downloads import fetch_pinned, pinned_sha256
from tests.infra.test_engine import cache, held, stand_in

__all__ = ["cache"]  # the fixture

ENGINE = f"#!/bin/sh\necho v{VERSION}\n"


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pulumi's site as a folder, with one release whose digest is pinned; the release's path."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    folder = tmp_path / "site"
    folder.mkdir()
    archive = folder / f"pulumi-v{VERSION}-{sys.platform}-{machine}.tar.gz"
    pack(archive, "pulumi/pulumi")
    pin(archive, tmp_path / "SHA256SUMS")
    monkeypatch.setattr(pinned_downloads, "SUMS", tmp_path / "SHA256SUMS")
    monkeypatch.setattr(download, "RELEASES", f"file://{folder}")
    return archive


def pack(archive: Path, member: str) -> None:
    with tarfile.open(archive, "w:gz") as files:
        for name in (member, "pulumi/pulumi-language-go"):
            info = tarfile.TarInfo(name)
            info.size = len(ENGINE)
            files.addfile(info, io.BytesIO(ENGINE.encode()))


def pin(archive: Path, sums: Path) -> None:
    sums.write_text(f"# ours\n{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n")


@pytest.mark.parametrize(
    "name",
    [
        *(f"pulumi-v{VERSION}-{one}.tar.gz" for one in ("linux-x64", "linux-arm64")),
        *(f"pulumi-v{VERSION}-{one}.tar.gz" for one in ("darwin-x64", "darwin-arm64")),
        *(f"v0.0.1-go{GO_VERSION}.{one}.zip" for one in ("linux-amd64", "linux-arm64")),
    ],
)
def test_everything_that_is_downloaded_for_the_engine_has_a_digest(name: str) -> None:
    sha256 = pinned_sha256(name)
    assert sha256 is not None
    assert len(bytes.fromhex(sha256)) == 32


@pytest.mark.usefixtures("releases")
def test_the_pinned_release_becomes_the_engine(cache: Path) -> None:
    assert find_engine(silent, {"download": install_release}) == Engine(
        held(cache), VERSION, "download"
    )
    assert engine_version(held(cache)) == VERSION
    assert [path.name for path in held(cache).parents[1].rglob("*")] == ["bin", "pulumi"]


def test_another_file_is_removed_told_and_never_run(
    cache: Path, releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = hashlib.sha256(releases.read_bytes()).hexdigest()
    releases.write_bytes(releases.read_bytes() + b"\0")
    actual = hashlib.sha256(releases.read_bytes()).hexdigest()
    monkeypatch.setattr("infra.pulumi_engine.installation.build_engine", stand_in())
    reported: list[Progress] = []
    engine = find_engine(
        reported.append, {"download": install_release, "build": install_built_engine}
    )
    assert engine.source == "build"  # from modules that go.sum pins
    assert [progress for progress in reported if progress.state == "failed"] == [
        Progress(
            "engine",
            f"pulumi v{VERSION} archive",
            "failed",
            f"file://{releases} is not the pinned file and was removed: sha256 {actual}, not"
            f" {expected}",
        )
    ]


def test_where_nothing_else_is_left_it_is_refused_in_one_line(cache: Path, releases: Path) -> None:
    releases.write_bytes(b"<html>sign in</html>")
    with pytest.raises(InfraError) as caught:
        find_engine(silent, {"download": install_release})
    assert f"(download: file://{releases} is not the pinned file and was removed: sha256" in str(
        caught.value
    )
    assert "\n" not in str(caught.value)
    assert [path.name for path in (cache / "engine").iterdir()] == ["lock"]


def test_a_release_of_another_layout_is_refused(releases: Path, tmp_path: Path) -> None:
    pack(releases, "bin/pulumi")
    pin(releases, pinned_downloads.SUMS)
    with pytest.raises(InfraError, match=r"\.tar\.gz has no pulumi/pulumi \("):
        download_engine(VERSION, tmp_path, silent)


@pytest.mark.usefixtures("releases")
def test_a_release_without_a_digest_is_not_even_fetched(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=r"^no sha256 is pinned for pulumi-v3\.999\.0-"):
        download_engine("3.999.0", tmp_path, silent)


@pytest.fixture
def cut_off() -> Iterator[str]:
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


def test_a_transfer_that_breaks_off_is_told_as_that(cut_off: str, tmp_path: Path) -> None:
    with pytest.raises(InfraError) as caught:
        fetch_pinned(cut_off, tmp_path / "file", "file", silent, "try again")
    assert str(caught.value) == (
        f"{cut_off} cannot be downloaded (it ended after 4 of 10 bytes); try again"
    )
    assert list(tmp_path.iterdir()) == []
