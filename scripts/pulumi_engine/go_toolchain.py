"""The Go toolchain that builds Pulumi's engine: the one on PATH if it is new enough, or Go's own.

A closed network often allows only the Go module proxy. The proxy also serves Go itself, as the
module `golang.org/toolchain` (https://go.dev/doc/toolchain#download, 2026-11-20).
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from config.errors import InfraError
from config.folders import cache_home
from config.progress import Reporter
from infra.stack.installation import fetch_pinned

SOURCE = Path(__file__).parent / "source"
VERSION = "1.26.8"
SHA256 = {
    f"v0.0.1-go{VERSION}.linux-amd64.zip": (
        "30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7"
    ),
    f"v0.0.1-go{VERSION}.linux-arm64.zip": (
        "02b36b6787b3ac767668f630e2998df45a3b1f9ffee08d1bf3ef6487cd658d99"
    ),
}
"""The sha256 of each archive; each was compared once with its hash in Go's checksum database.

The hashes in https://sum.golang.org (2026-11-20), in the order above:
`h1:ZOmGe1OnfREDMIdb1Qi4G9JSuDPBLGExZMQ4nis1RXM=`,
`h1:sYL/O6MqS68ML0kjsQ36WoYIpJqkw60TxizWUYUKQMc=`.
"""

_PUBLIC_PROXY = "https://proxy.golang.org"
_NUMBERS = re.compile(r"go(\d+(?:\.\d+)*)")


def go_folder() -> Path:
    """Return the folder of the downloaded toolchains and of their caches."""
    return cache_home() / "go"


def required_go() -> str:
    """Return the oldest version of Go that builds Pulumi's engine, from `source/go.mod`."""
    match = re.search(r"^go (\S+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert match is not None, "source/go.mod has no go line"
    return match[1]


def version_of(go: Path) -> str | None:
    """Return a `go` command's version, such as `1.26.8`; None if its answer is not Go's."""
    try:
        # Without `local`, a go.mod in the working directory may make Go download another release.
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


def is_new_enough(version: str | None) -> bool:
    """Return whether this version of Go builds Pulumi's engine."""
    return version is not None and _numbers(version) >= _numbers(required_go())


def go_on_path() -> Path | None:
    """Return the `go` on PATH if it is new enough, else None."""
    found = shutil.which("go")
    return Path(found) if found and is_new_enough(version_of(Path(found))) else None


def ensure_go(report: Reporter) -> Path:
    """Return the path of a `go` that builds Pulumi's engine; download one if PATH has none.

    Raises InfraError if the download fails.
    """
    go = go_on_path()
    if go is not None:
        return go
    release = go_folder() / f"go{VERSION}"
    if not (release / "bin" / "go").is_file():
        _fetch(release, report)
    return release / "bin" / "go"


def proxy_url() -> str:
    """Return the first entry of GOPROXY that is a proxy, or the public one.

    Raises InfraError for `GOPROXY=off`, with which the user forbids module downloads.
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
    """Download the pinned release of Go and unpack it at `release`, completely or not at all."""
    module = f"v0.0.1-go{VERSION}.{_platform()}"
    sha256 = SHA256.get(f"{module}.zip")
    if sha256 is None:
        raise InfraError(
            f"no Go >= {required_go()} on PATH, and none is pinned for {_platform()}",
            f"install Go >= {required_go()}",
        )
    proxy = proxy_url()
    if not proxy.startswith(("https://", "http://", "file://")):
        raise InfraError(f"GOPROXY '{proxy}' is not a URL", f"set it to {_PUBLIC_PROXY}")
    url = f"{proxy}/golang.org/toolchain/@v/{module}.zip"
    hint = f"install Go >= {required_go()}, or set GOPROXY to a Go module proxy"
    release.parent.mkdir(parents=True, exist_ok=True)
    # A killed process left them; the caller has the lock.
    for left in release.parent.glob(".fetch-*"):
        shutil.rmtree(left, ignore_errors=True)  # what stays is removed by the next download
    with tempfile.TemporaryDirectory(dir=release.parent, prefix=".fetch-") as folder:
        archive = Path(folder) / "go.zip"
        fetch_pinned(url, archive, sha256, f"go {VERSION}", report, hint)
        _unpack(archive, f"golang.org/toolchain@{module}/", Path(folder) / "go")
        (Path(folder) / "go").rename(release)


def _unpack(archive: Path, prefix: str, target: Path) -> None:
    """Unpack a module archive; set the modes of Go's programs, which such archives do not keep."""
    with zipfile.ZipFile(archive) as files:
        for info in files.infolist():
            name = info.filename.removeprefix(prefix)
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.open(info) as source, path.open("wb") as file:
                shutil.copyfileobj(source, file)
            if name.startswith(("bin/", "pkg/tool/")):
                path.chmod(0o755)
