"""The installation of Pulumi's engine, the command `pulumi`.

PyPI's `pulumi` is only the SDK; the engine is a Go program. gpuctl uses the engine that the setting
`pulumi` names. Without that setting it takes the first of: `pulumi` on PATH if it works with the
SDK, the engine in gpuctl's cache, and a download of Pulumi's release into that cache.

gpuctl downloads Pulumi's archive itself and compares it with a pinned sha256, because that is safer
than `PulumiCommand.install` of the SDK. That function runs https://get.pulumi.com/install.sh
without a check, and the script unpacks the archive without a check
(https://github.com/pulumi/get.pulumi.com/blob/de7ce38e0e5b/dist/install.sh, 2026-11-26).

Where get.pulumi.com cannot be reached, `make engine` in gpuctl's checkout builds the engine into
the same cache (scripts/pulumi_engine).
"""

import hashlib
import http.client
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from semver import VersionInfo

from config.errors import InfraError, InputError
from config.file_locks import wait_for_lock
from config.files import os_errors_as
from config.folders import cache_home, user_path
from config.progress import Progress, Reporter
from config.settings import settings

VERSION = "3.258.0"
"""The version that gpuctl installs, which is that of the SDK in pyproject.toml."""

RELEASES = "https://get.pulumi.com/releases/sdk"

SHA256 = {
    f"pulumi-v{VERSION}-linux-x64.tar.gz": (
        "b6cf2de0243fece40f386bc7ae6a5194c39e15891c79f66cc6c8905bea8c6479"
    ),
    f"pulumi-v{VERSION}-linux-arm64.tar.gz": (
        "c5928718c70ab328b22843ee41908942148743ff3021b29852efdcdd6ce369f1"
    ),
    f"pulumi-v{VERSION}-darwin-x64.tar.gz": (
        "65cab2b670b6fd85e7bbcf956563cf7597ea13c2804c82f95f7407e60b01ec5f"
    ),
    f"pulumi-v{VERSION}-darwin-arm64.tar.gz": (
        "4f743ed05afd9dc2e0663622e496bfe903a6ae6c102c54cf9e3f84af85a695bf"
    ),
}
"""The sha256 of each archive of the release.

They are those of the formula that Pulumi's release makes for Homebrew,
https://github.com/pulumi/homebrew-tap/blob/18f79b69f27ccbd84f022af4eb77a84c2dc7ca9a/Formula/pulumi.rb
(2026-08-17, read on 2026-11-22). The formula names the archives of the GitHub release.
get.pulumi.com serves the same ones: the formulas and the sha256 of get.pulumi.com's archives in
public Nix expressions agree for 3.128.0 and 3.141.0.
"""

REMEDY = (
    f"put `pulumi` >= {VERSION} on PATH, name it in GPUCTL_PULUMI, or build it with `make engine`"
    " in gpuctl's checkout"
)
"""The ways to an engine on a machine that cannot reach get.pulumi.com, for a message."""

_SUBJECT = f"pulumi v{VERSION}"
_MACHINES = {"x86_64": "x64", "aarch64": "arm64"}
_MEMBER = "pulumi/pulumi"  # the archive also has language hosts; an inline program needs none
_BLOCK = 1 << 20
_CONNECT_TIMEOUT_S = 60
_LIMIT_S = 900


Source = Literal["setting", "path", "cache"]


@dataclass(frozen=True)
class Engine:
    """A `pulumi` command that works with the SDK, and where gpuctl found it."""

    path: Path
    version: str
    source: Source


def find_engine(report: Reporter, releases: str = RELEASES) -> Engine:
    """Return an engine that works with the SDK; download it, in minutes, if there is none.

    `releases` is the URL of Pulumi's releases. Raises InputError if the setting `pulumi` names no
    such engine, and InfraError if the download fails.
    """
    engine = installed_engine()
    if engine is not None:
        return engine
    try:
        return install_engine(partial(download_release, releases=releases), report)
    except InfraError as error:
        report(Progress("engine", _SUBJECT, "failed"))
        raise InfraError(
            f"Pulumi's engine is not installed ({missing_engine()}): {error.message}",
            f"{error.hint}, or {REMEDY}" if error.hint else REMEDY,
        ) from error


def installed_engine() -> Engine | None:
    """Return an engine that is already installed, or None.

    Raises InputError if the setting `pulumi` names no engine that works with the SDK.
    """
    return _engine_of_setting() or _engine_on_path() or _cached_engine()


def missing_engine() -> str:
    """Return where gpuctl found no engine that works with the SDK, for a message."""
    command = shutil.which("pulumi")
    if command is None:
        return f"PATH has no `pulumi`, and {_cached_path().parent.parent.parent} has none"
    version = engine_version(Path(command))
    return f"{command} is {version or 'not Pulumi'}; gpuctl needs >= {VERSION}"


def fits(version: str | None) -> bool:
    """Return whether an engine of this version works with the SDK.

    It must have the same major version and not be older than the SDK. An older engine may not know
    the Automation API's flags and the SDK's protocol, while Pulumi keeps newer engines of a major
    version compatible. Pre-releases do not work: their number does not show what they support.
    """
    if version is None or not VersionInfo.is_valid(version):
        return False
    actual, expected = VersionInfo.parse(version), VersionInfo.parse(VERSION)
    is_release = actual.prerelease is None
    return is_release and actual.major == expected.major and actual >= expected


def engine_version(path: Path) -> str | None:
    """Return the version that a `pulumi` command prints, such as `3.258.0`, or None.

    None also if it does not answer within 30 s.
    """
    try:
        answer = subprocess.run(
            [path, "version"],
            env=os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    version = answer.removeprefix("v")
    return version if VersionInfo.is_valid(version) else None


def install_engine(fill: Callable[[Path, Reporter], None], report: Reporter) -> Engine:
    """Install the engine into the cache, completely or not at all, and return it.

    `fill` puts the engine into an empty folder, as `bin/pulumi`. If two processes install it at the
    same time, the second one waits and uses the engine of the first.
    """
    started = time.monotonic()
    final = _cached_path().parent.parent
    with _install_lock(final.parent, report):
        engine = _cached_engine()
        if engine is not None:
            return engine  # another process installed it during the wait
        report(Progress("engine", _SUBJECT, "start"))
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".making-") as folder:
            root = Path(folder) / "root"
            root.mkdir()
            hint = "free space there, or set XDG_CACHE_HOME to another folder"
            with os_errors_as(InfraError, f"{final.parent} cannot be written", hint):
                fill(root, report)
            version = engine_version(root / "bin" / "pulumi")
            if version is None or not fits(version):
                raise InfraError(
                    f"the installed engine of Pulumi has version {version}, not {VERSION}",
                    "report this as a bug of gpuctl",
                )
            shutil.rmtree(final, ignore_errors=True)  # rename fails if something stays
            root.rename(final)
    seconds = time.monotonic() - started
    report(Progress("engine", _SUBJECT, "done", str(_cached_path()), seconds))
    return Engine(_cached_path(), version, "cache")


def download_release(root: Path, report: Reporter, releases: str = RELEASES) -> None:
    """Download the engine of Pulumi's release to `root/bin/pulumi`.

    Raises InfraError if no archive is pinned for this machine, and as `fetch_pinned` does.
    """
    machine = _MACHINES.get(platform.machine(), platform.machine())
    name = f"pulumi-v{VERSION}-{sys.platform}-{machine}.tar.gz"
    if name not in SHA256:
        raise InfraError(f"gpuctl has no sha256 of {name}", "")
    archive = root / name
    hint = "allow HTTPS to get.pulumi.com"
    fetch_pinned(f"{releases}/{name}", archive, SHA256[name], f"{_SUBJECT} archive", report, hint)
    (root / "bin").mkdir()
    try:
        with tarfile.open(archive) as files:
            source = files.extractfile(_MEMBER)
            assert source is not None
            with source, (root / "bin" / "pulumi").open("wb") as engine:
                shutil.copyfileobj(source, engine)
    except (KeyError, tarfile.TarError) as error:
        raise InfraError(
            f"{name} has no {_MEMBER} ({error})", "report this as a bug of gpuctl"
        ) from error
    (root / "bin" / "pulumi").chmod(0o755)
    archive.unlink()


def fetch_pinned(
    url: str, path: Path, sha256: str, subject: str, report: Reporter, hint: str
) -> None:
    """Download `url` to `path`, and keep the file only if it has this sha256.

    A read waits at most 60 s, the whole download takes at most 15 minutes. Raises InfraError with
    `hint` if the download fails, and InfraError if the file has another sha256. No file is left at
    `path` then.
    """
    try:
        actual = _download(url, path, subject, report)
    except (OSError, http.client.HTTPException) as error:
        path.unlink(missing_ok=True)
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise InfraError(f"{url} cannot be downloaded ({reason})", hint) from error
    if actual != sha256:
        path.unlink()
        raise InfraError(
            f"{url} is not the pinned file and was removed: sha256 {actual}, not {sha256}",
            "find out which server or proxy sends another file",
        )
    report(Progress("engine", subject, "done", url))


def _engine_of_setting() -> Engine | None:
    """Return the engine that the user's setting names, or None without that setting."""
    setting = settings()["pulumi"]
    if setting.value is None:
        return None
    path = user_path(setting.value).absolute()
    if engine := _engine_at(path, "setting"):
        return engine
    if not path.exists():
        problem = "does not exist"
    elif path.is_dir():
        problem = "is a folder"
    elif version := engine_version(path):
        problem = f"is Pulumi {version}"
    else:
        problem = "is not a `pulumi` that runs on this machine"
    raise InputError(
        f"the setting 'pulumi' ({setting.source}) is {path}, which {problem}",
        f"name the command `pulumi` of Pulumi >= {VERSION} there, or remove the setting",
    )


def _engine_on_path() -> Engine | None:
    """Return the `pulumi` on PATH if it works with the SDK."""
    command = shutil.which("pulumi")
    return _engine_at(Path(command), "path") if command else None


def _cached_engine() -> Engine | None:
    """Return the engine in the cache if it runs on this machine.

    It does not if the home is shared with another kind of machine, or if the disk is damaged.
    """
    return _engine_at(_cached_path(), "cache")


def _engine_at(path: Path, source: Source) -> Engine | None:
    """Return the engine at this path if it works with the SDK."""
    version = engine_version(path)
    return Engine(path, version, source) if version is not None and fits(version) else None


def _cached_path() -> Path:
    return cache_home() / "engine" / f"v{VERSION}" / "bin" / "pulumi"


def _download(url: str, path: Path, subject: str, report: Reporter) -> str:
    """Download `url` to `path`, and return the file's sha256."""
    digest = hashlib.sha256()
    started = time.monotonic()
    opener = urllib.request.build_opener()  # with the proxies of now; urlopen keeps its first ones
    with opener.open(url, timeout=_CONNECT_TIMEOUT_S) as answer, path.open("wb") as file:
        size = int(answer.headers.get("Content-Length") or 0)
        while block := answer.read(_BLOCK):
            file.write(block)
            digest.update(block)
            seconds = round(time.monotonic() - started)
            if seconds > _LIMIT_S:
                raise TimeoutError(f"not complete within {_LIMIT_S // 60} minutes")
            detail = f"{file.tell() >> 20} of {size >> 20} MiB"
            report(Progress("engine", subject, "running", detail, seconds))
        if file.tell() < size:
            raise OSError(f"it ended after {file.tell()} of {size} bytes")
    return digest.hexdigest()


@contextmanager
def _install_lock(folder: Path, report: Reporter) -> Iterator[None]:
    """Hold the lock for installations, and remove what killed processes left."""
    hint = "set XDG_CACHE_HOME to a folder that you can write"
    with os_errors_as(InfraError, f"{folder} cannot be written", hint):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    with lock:
        wait_for_lock(
            lock,
            lambda: report(
                Progress("engine", _SUBJECT, "running", "another gpuctl is installing it")
            ),
        )
        for left in folder.glob(".making-*"):
            shutil.rmtree(left, ignore_errors=True)  # what stays only takes space
        yield
