"""Pulumi's engine, the `pulumi` command: found, or made when it is not there.

PyPI's `pulumi` is the SDK alone; the engine is a Go program. It is looked for on PATH and in our
cache, then downloaded as Pulumi released it, then built from Go modules; both are pinned.
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
"""The engine that we make: the SDK's version in pyproject.toml and the one in source/."""

_SUBJECT = f"pulumi v{VERSION}"
_VERSION_TEXT = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(\S*)")


@dataclass(frozen=True)
class Engine:
    """A `pulumi` command that fits the SDK, and where it came from."""

    path: Path
    version: str
    source: Literal["path", "cache", "download", "build"]


@dataclass(frozen=True)
class Finding:
    """One thing that `gpuctl doctor` shows. `remedy` says what to do; empty where all is well."""

    what: str
    seen: str
    remedy: str


EngineSource = Callable[[Reporter], Engine]
"""One way to an engine; raises InfraError where it leads nowhere."""


def engine_on_path(_: Reporter) -> Engine:
    """The `pulumi` on PATH, when it fits."""
    found = shutil.which("pulumi")
    if found is None:
        raise InfraError("no pulumi", f"install Pulumi >= {VERSION}")
    version = engine_version(Path(found))
    if not fits(version):
        raise InfraError(f"{found} is {version or 'no engine'}", f"upgrade it to >= {VERSION}")
    return Engine(Path(found), version or "", "path")


def cached_engine(_: Reporter) -> Engine:
    """The engine that an earlier command left in the cache."""
    path = _cached_path()
    if not path.is_file():
        raise InfraError("empty", "")
    version = _checked_version(path)
    if version is None:
        # Another machine's home, or a damaged disk: it is made anew.
        raise InfraError(f"{path} does not run here", "")
    return Engine(path, version, "cache")


def installed_engine() -> Engine | None:
    """Return an engine that needs not be made first, or None."""
    for way in (engine_on_path, cached_engine):
        with suppress(InfraError):  # the next way, or none at hand
            return way(silent)
    return None


def install_release(report: Reporter) -> Engine:
    """The engine of the pinned release, downloaded into the cache."""
    return _made("download", download_engine, report)


def install_built_engine(report: Reporter) -> Engine:
    """The engine, built into the cache from the pinned Go modules."""
    return _made("build", build_engine, report)


SOURCES: dict[str, EngineSource] = {
    "PATH": engine_on_path,
    "cache": cached_engine,
    "download": install_release,
    "build": install_built_engine,
}
"""In this order: what is there before what takes minutes."""


def find_engine(report: Reporter, ways: dict[str, EngineSource] = SOURCES) -> Engine:
    """An engine that fits the SDK is at the returned path; at first this may take minutes.

    Raises InfraError when no way leads to one, with what each said.
    """
    started = time.monotonic()
    failed: dict[str, InfraError] = {}
    for name, way in ways.items():
        try:
            engine = way(report)
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
        f"Pulumi's engine >= {VERSION} is neither here nor to be had ({tried})",
        "install it (https://www.pulumi.com/docs/install) and have `pulumi` on PATH, or open HTTPS"
        " to get.pulumi.com or to a Go module proxy (GOPROXY)",
    )


def fits(version: str | None) -> bool:
    """Whether an engine of this version serves our SDK.

    The same major version, and not older than the SDK: the Automation API passes flags, and the
    SDK speaks a protocol, that older engines may not know, while Pulumi keeps newer engines of a
    major version compatible. Releases only: what a pre-release knows is not told by its number.
    """
    match = _VERSION_TEXT.fullmatch(version or "")
    if match is None or match[4].startswith("-"):
        return False
    wanted = tuple(int(part) for part in VERSION.split("."))
    actual = tuple(int(match[i]) for i in (1, 2, 3))
    return actual[0] == wanted[0] and actual >= wanted


def engine_version(path: Path) -> str | None:
    """`3.258.0` for a `pulumi` command; None for one that does not answer within 30 s."""
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


def findings() -> tuple[Finding, ...]:
    """What is here of an engine, and of what makes one. Nothing is changed or fetched."""
    pulumi, go = shutil.which("pulumi"), shutil.which("go")
    version = engine_version(Path(pulumi)) if pulumi else None
    held = engine_version(_cached_path())
    have = fits(version) or fits(held)
    make = "" if have else "the first command that needs it makes it (minutes)"
    go_version = version_of(Path(go)) if go else None
    fetch = f"Go {GO_VERSION} is fetched if the engine must be built"
    return (
        Finding(
            "pulumi on PATH",
            f"{pulumi} {version or '(no engine)'}" if pulumi else "none",
            ""
            if fits(version) or not pulumi
            else f"upgrade it to >= {VERSION}, or leave it: gpuctl uses its own",
        ),
        Finding("pulumi in the cache", f"{_cached_path()} {held}" if held else "none", make),
        Finding(
            "go",
            f"{go} {go_version or '(no Go)'}" if go else "none",
            "" if have or is_new_enough(go_version) else f"{fetch} (>= {required_go()} fits)",
        ),
    )


def _cached_path() -> Path:
    return cache_home() / "engine" / f"v{VERSION}" / "bin" / "pulumi"


def _checked_version(path: Path) -> str | None:
    """Return the version of our own engine if it runs on this machine.

    It is asked once per machine and file, and the answer kept beside it: a start takes 0.2 s. An
    engine on PATH is asked each time: what is there may be a shim that chooses among versions.
    """
    status = path.stat()
    mark = f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"
    seen = path.parent.parent / f"checked.{platform.node()}"
    with suppress(OSError):  # never asked before
        before, _, version = seen.read_text().partition("\n")
        if before == mark and fits(version):
            return version
    asked = engine_version(path)
    if not fits(asked):
        return None
    with suppress(OSError):  # a cache of somebody else's: it is asked again
        seen.write_text(f"{mark}\n{asked}")
    return asked


def _made(
    source: Literal["download", "build"],
    make: Callable[[str, Path, Reporter], None],
    report: Reporter,
) -> Engine:
    """The engine is in the cache, whole; where `make` fails nothing is left of it."""
    final = _cached_path().parent.parent
    with _only_one(final.parent, report):
        try:
            return cached_engine(report)  # another process made it while we waited
        except InfraError:
            pass  # it is still to be made
        report(Progress("engine", _SUBJECT, "start", source))
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".making-") as folder:
            root = Path(folder) / "root"
            root.mkdir()
            try:
                make(VERSION, root, report)
            except OSError as error:
                raise InfraError(f"{error.strerror or error}", f"see to {final.parent}") from error
            version = engine_version(root / "bin" / "pulumi")
            if not fits(version):
                raise InfraError(f"it gave an engine that says {version}", "report it")
            shutil.rmtree(final, ignore_errors=True)  # rename complains of what stays
            root.rename(final)
    return Engine(_cached_path(), version or "", source)


@contextmanager
def _only_one(folder: Path, report: Reporter) -> Iterator[None]:
    """No other process makes an engine meanwhile, and what killed ones left is gone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise InfraError(
            f"{folder} cannot be written ({error.strerror})", "set XDG_CACHE_HOME"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(Progress("engine", _SUBJECT, "running", "another gpuctl is making it"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.glob(".making-*"):
            shutil.rmtree(left, ignore_errors=True)  # of a maker that was killed: room alone
        yield
