"""A Go toolchain for building Pulumi's engine: the one on PATH where it fits, or Go's own release.

Behind a closed network the Go module proxy is often all there is, and it serves Go itself as the
module `golang.org/toolchain` (https://go.dev/doc/toolchain#download, 2026-11-20). The archives
are pinned by sha256; each was compared once with its hash in Go's checksum database.
"""

import hashlib
import http.client
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from config.errors import InfraError
from config.folders import cache_home
from config.progress import Progress, Reporter

SOURCE = Path(__file__).parent / "engine_source"
VERSION = "1.26.8"
_SHA256 = {
    "linux-amd64": "30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7",
    "linux-arm64": "02b36b6787b3ac767668f630e2998df45a3b1f9ffee08d1bf3ef6487cd658d99",
}
_PUBLIC_PROXY = "https://proxy.golang.org"
_NUMBERS = re.compile(r"go(\d+(?:\.\d+)*)")


def go_folder() -> Path:
    """Where toolchains that gpuctl fetched lie, and what only they use."""
    return cache_home() / "go"


def required_go() -> str:
    """The oldest Go that builds the engine: the `go` line of the shipped go.mod."""
    match = re.search(r"^go (\S+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert match is not None, "the shipped go.mod has no go line"
    return match[1]


def version_of(go: Path) -> str | None:
    """`1.26.8` for a `go` command; None for one that does not answer as Go does."""
    try:
        # Without `local`, a go.mod in the working directory may make Go fetch another release.
        answer = subprocess.run(
            [go, "version"],
            env=os.environ | {"GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = _NUMBERS.search(answer)
    return match[1] if match else None


def is_fitting(version: str | None) -> bool:
    """Whether this Go builds the engine."""
    return version is not None and _numbers(version) >= _numbers(required_go())


def go_on_path() -> Path | None:
    """The `go` on PATH when it is new enough."""
    found = shutil.which("go")
    return Path(found) if found and is_fitting(version_of(Path(found))) else None


def ensure_go(report: Reporter) -> Path:
    """A `go` command that builds the engine lies at the returned path.

    Raises InfraError when PATH has none and Go's own release cannot be had here.
    """
    go = go_on_path()
    if go is not None:
        return go
    release = go_folder() / f"go{VERSION}"
    if not (release / "bin" / "go").is_file():
        _fetch(release, report)
    return release / "bin" / "go"


def proxy_url() -> str:
    """The first entry of GOPROXY that is a proxy, or the public one.

    Raises InfraError for `GOPROXY=off`: the user wants no module downloads.
    """
    for entry in re.split(r"[,|]", os.environ.get("GOPROXY", "")):
        if entry.strip() == "off":
            raise InfraError("GOPROXY is off", "unset GOPROXY, or set it to a Go module proxy")
        if entry.strip() not in ("", "direct"):
            return entry.strip().rstrip("/")
    return _PUBLIC_PROXY


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _platform() -> str:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"{sys.platform}-{machine}"


def _fetch(release: Path, report: Reporter) -> None:
    """The pinned release lies unpacked at `release`, or nothing does."""
    sha256 = _SHA256.get(_platform())
    if sha256 is None:
        raise InfraError(
            f"no Go >= {required_go()} on PATH, and none is pinned for {_platform()}",
            f"install Go >= {required_go()}",
        )
    module = f"v0.0.1-go{VERSION}.{_platform()}"
    url = f"{proxy_url()}/golang.org/toolchain/@v/{module}.zip"
    release.parent.mkdir(parents=True, exist_ok=True)
    for left in release.parent.glob(".fetch-*"):  # of a killed process: the caller holds the lock
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=release.parent, prefix=".fetch-") as folder:
        archive = Path(folder) / "go.zip"
        _download(url, archive, report)
        if hashlib.sha256(archive.read_bytes()).hexdigest() != sha256:
            raise InfraError(
                f"{url} is not the pinned archive (sha256 differs)", "check GOPROXY and try again"
            )
        _unpack(archive, f"golang.org/toolchain@{module}/", Path(folder) / "go")
        (Path(folder) / "go").rename(release)


def _download(url: str, archive: Path, report: Reporter) -> None:
    if not url.startswith(("https://", "http://", "file://")):
        raise InfraError(f"GOPROXY '{url}' is not a URL", "set it to https://proxy.golang.org")
    subject = f"go {VERSION}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, archive.open("wb") as file:  # noqa: S310
            size = int(answer.headers.get("Content-Length") or 0) >> 20
            while block := answer.read(8 << 20):
                file.write(block)
                detail = f"{file.tell() >> 20} of {size} MiB"
                report(Progress("engine", subject, "running", detail))
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise InfraError(
            f"{url} cannot be fetched ({reason})",
            f"install Go >= {required_go()}, or set GOPROXY to a Go module proxy",
        ) from error
    report(Progress("engine", subject, "done", url))


def _unpack(archive: Path, prefix: str, target: Path) -> None:
    """Module archives keep no modes: what Go starts is made executable here."""
    with zipfile.ZipFile(archive) as files:
        for info in files.infolist():
            name = info.filename.removeprefix(prefix)
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.open(info) as source, path.open("wb") as file:
                shutil.copyfileobj(source, file)
            if name.startswith(("bin/", "pkg/tool/")):
                path.chmod(0o755)
