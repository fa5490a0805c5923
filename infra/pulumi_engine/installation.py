"""The installation of the Pulumi engine, the `pulumi` command.

PyPI's `pulumi` is only the SDK; the Pulumi engine is a Go program. gpuctl searches PATH and its
cache, then downloads Pulumi's release, then builds the release from Go modules. Both are pinned.
"""

import fcntl
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from config.errors import InfraError
from config.folders import cache_home
from config.progress import Progress, Reporter, silent
from infra.pulumi_engine.build import build_engine
from infra.pulumi_engine.download import download_engine
from infra.pulumi_engine.go_toolchain import VERSION as GO_VERSION
from infra.pulumi_engine.go_toolchain import is_new_enough, required_go, version_of

VERSION = "3.258.0"
"""The version that gpuctl installs, which is that of the SDK in pyproject.toml and of source/."""

_FOLDER = f"v{VERSION}-2"
"""The Pulumi engine's folder in the cache; another number if `source/` changes at one version."""

_SUBJECT = f"pulumi v{VERSION}"
_VERSION_TEXT = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(\S*)")


@dataclass(frozen=True)
class Engine:
    """A `pulumi` command that works with the SDK, and its source."""

    path: Path
    version: str
    source: Literal["path", "cache", "download", "build"]


@dataclass(frozen=True)
class EngineFinding:
    """One line of `gpuctl doctor`; `remedy` is empty if all is well."""

    what: str
    seen: str
    remedy: str


EngineSource = Callable[[Reporter], Engine]
"""A function that returns a Pulumi engine from one source, or raises InfraError."""


def engine_on_path(_: Reporter) -> Engine:
    """Return the `pulumi` on PATH if it works with the SDK."""
    found = shutil.which("pulumi")
    if found is None:
        raise InfraError("no pulumi", f"install Pulumi >= {VERSION}")
    version = engine_version(Path(found))
    if not fits(version):
        raise InfraError(f"{found} is {version or 'not Pulumi'}", f"upgrade it to >= {VERSION}")
    return Engine(Path(found), version or "", "path")


def cached_engine(_: Reporter) -> Engine:
    """Return the Pulumi engine that an earlier command installed into the cache."""
    path = _cached_path()
    if not path.is_file():
        raise InfraError("empty", "")
    version = _checked_version(path)
    if version is None:
        # The home may be another machine's, or the disk damaged: it is installed again.
        raise InfraError(f"{path} does not run here", "")
    return Engine(path, version, "cache")


def installed_engine() -> Engine | None:
    """Return a Pulumi engine that is already installed, or None."""
    for source in (engine_on_path, cached_engine):
        with suppress(InfraError):  # try the next source
            return source(silent)
    return None


def install_release(report: Reporter) -> Engine:
    """Download the pinned release into the cache, and return it."""
    return _install("download", download_engine, report)


def install_built_engine(report: Reporter) -> Engine:
    """Build the Pulumi engine from the pinned Go modules into the cache, and return it."""
    return _install("build", build_engine, report)


SOURCES: dict[str, EngineSource] = {
    "PATH": engine_on_path,
    "cache": cached_engine,
    "download": install_release,
    "build": install_built_engine,
}
"""All sources by name, in the order of search: those that take minutes are last."""


def find_engine(report: Reporter, ways: dict[str, EngineSource] = SOURCES) -> Engine:
    """Return a Pulumi engine that works with the SDK; install one, in minutes, if there is none.

    Raises InfraError with each source's error if all fail.
    """
    started = time.monotonic()
    failed: dict[str, InfraError] = {}
    for name, source in ways.items():
        try:
            engine = source(report)
        except InfraError as error:
            failed[name] = error
        else:
            if engine.source in ("download", "build"):
                seconds = time.monotonic() - started
                report(Progress("engine", _SUBJECT, "done", str(engine.path), seconds))
            return engine
    report(Progress("engine", _SUBJECT, "failed"))
    tried = "; ".join(f"{name}: {error.message}" for name, error in failed.items())
    raise InfraError(
        f"the Pulumi engine >= {VERSION} is not installed and cannot be installed ({tried})",
        "put `pulumi` on PATH (https://www.pulumi.com/docs/install), or allow HTTPS to"
        " get.pulumi.com or to a Go module proxy (GOPROXY)",
    )


def fits(version: str | None) -> bool:
    """Return whether a Pulumi engine of this version works with the SDK.

    It must have the same major version and not be older than the SDK. An older engine may not know
    the Automation API's flags and the SDK's protocol, while Pulumi keeps newer engines of a major
    version compatible. Pre-releases do not work: their number does not show what they support.
    """
    match = _VERSION_TEXT.fullmatch(version or "")
    if match is None or match[4].startswith("-"):
        return False
    wanted = tuple(int(part) for part in VERSION.split("."))
    actual = tuple(int(match[i]) for i in (1, 2, 3))
    return actual[0] == wanted[0] and actual >= wanted


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
    return answer.removeprefix("v") if _VERSION_TEXT.fullmatch(answer) else None


def findings() -> tuple[EngineFinding, ...]:
    """Return the state of the Pulumi engine and of Go here; change and download nothing."""
    pulumi, go = shutil.which("pulumi"), shutil.which("go")
    version = engine_version(Path(pulumi)) if pulumi else None
    held = engine_version(_cached_path())
    have = fits(version) or fits(held)
    install = "" if have else "the first command that needs it installs it (minutes)"
    go_version = version_of(Path(go)) if go else None
    fetch = f"gpuctl downloads Go {GO_VERSION} if it must build the Pulumi engine"
    return (
        EngineFinding(
            "pulumi on PATH",
            f"{pulumi} {version or '(not Pulumi)'}" if pulumi else "none",
            ""
            if fits(version) or not pulumi
            else f"upgrade it to >= {VERSION}, or ignore it: gpuctl installs its own",
        ),
        EngineFinding(
            "pulumi in the cache", f"{_cached_path()} {held}" if held else "none", install
        ),
        EngineFinding(
            "go",
            f"{go} {go_version or '(not Go)'}" if go else "none",
            ""
            if have or is_new_enough(go_version)
            else f"{fetch}; >= {required_go()} on PATH would do",
        ),
    )


def _cached_path() -> Path:
    return cache_home() / "engine" / _FOLDER / "bin" / "pulumi"


def _checked_version(path: Path) -> str | None:
    """Return the version of the cached Pulumi engine if it runs on this machine.

    The version is read once per machine and file, and kept in a file next to it, because a start
    takes 0.2 s. For a `pulumi` on PATH it is read each time: that may be a shim that chooses among
    versions.
    """
    status = path.stat()
    mark = f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"
    seen = path.parent.parent / f"checked.{platform.node()}"
    with suppress(OSError):  # the version was never read before
        before, _, version = seen.read_text().partition("\n")
        if before == mark and fits(version):
            return version
    asked = engine_version(path)
    if not fits(asked):
        return None
    with suppress(OSError):  # the cache may be read-only: the version is read again next time
        seen.write_text(f"{mark}\n{asked}")
    return asked


def _install(
    source: Literal["download", "build"],
    make: Callable[[str, Path, Reporter], None],
    report: Reporter,
) -> Engine:
    """Install the Pulumi engine into the cache, completely or not at all, and return it."""
    final = _cached_path().parent.parent
    with _install_lock(final.parent, report):
        try:
            return cached_engine(report)  # another process installed it during the wait
        except InfraError:
            pass  # not installed yet
        report(Progress("engine", _SUBJECT, "start", source))
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".making-") as folder:
            root = Path(folder) / "root"
            root.mkdir()
            try:
                make(VERSION, root, report)
            except OSError as error:
                raise InfraError(
                    f"{final.parent} cannot be written: {error.strerror or error}",
                    "free space there, or set XDG_CACHE_HOME to another folder",
                ) from error
            version = engine_version(root / "bin" / "pulumi")
            if not fits(version):
                raise InfraError(
                    f"the installed Pulumi engine has version {version}, not {VERSION}",
                    "report this as a bug of gpuctl",
                )
            shutil.rmtree(final, ignore_errors=True)  # rename fails if something stays
            root.rename(final)
    return Engine(_cached_path(), version or "", source)


@contextmanager
def _install_lock(folder: Path, report: Reporter) -> Iterator[None]:
    """Hold the lock for installations, and remove what killed processes left."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise InfraError(
            f"{folder} cannot be written ({error.strerror})",
            "set XDG_CACHE_HOME to a folder that you can write",
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(Progress("engine", _SUBJECT, "running", "another gpuctl is installing it"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.glob(".making-*"):
            shutil.rmtree(left, ignore_errors=True)  # what stays only takes space
        yield
