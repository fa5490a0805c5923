"""Pulumi's engine built from the Go modules pinned in `source/`: what works behind a
closed network that has a Go module proxy.

`go install …@version` refuses the engine's module (it has replace directives), so a module of our
own names it as a tool, with every dependency's hash in go.sum.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from config.errors import InfraError
from config.progress import Progress, Reporter
from infra.pulumi_engine.go_toolchain import SOURCE, ensure_go, go_folder

_PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
_VERSION_VARIABLE = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
_LAST_LINES = 3


def build_engine(version: str, root: Path, report: Reporter) -> None:
    """`root/bin/pulumi` is Pulumi's engine; `root` is an empty folder of the caller's.

    Takes about 3 minutes on 2 cores. Raises InfraError with Go's own last lines.
    """
    go = ensure_go(report)
    sources = root / "source"
    shutil.copytree(SOURCE, sources)
    (root / "tmp").mkdir()
    command = [
        *(str(go), "build", "-v", "-mod=readonly", "-modcacherw", "-trimpath", "-buildvcs=false"),
        # Without its version the Automation API refuses the engine.
        *("-ldflags", f"-s -w -X {_VERSION_VARIABLE}=v{version}"),
        *("-o", str(root / "bin" / "pulumi"), _PACKAGE),
    ]
    _compile(command, sources, _environment(go, root / "tmp"), _Watch(version, report))
    shutil.rmtree(sources)
    shutil.rmtree(root / "tmp")
    if go.is_relative_to(go_folder()):
        # Nobody else on this machine has a use for a gigabyte of compiled packages.
        for folder in ("build", "path"):
            shutil.rmtree(go_folder() / folder, ignore_errors=True)  # room alone


def _environment(go: Path, temporary: Path) -> dict[str, str]:
    environment = os.environ | {
        "CGO_ENABLED": "0",  # the same static engine with and without a C compiler
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOTMPDIR": str(temporary),
    }
    if go.is_relative_to(go_folder()):
        environment.setdefault("GOCACHE", str(go_folder() / "build"))
        environment.setdefault("GOPATH", str(go_folder() / "path"))
    return environment


@dataclass
class _Watch:
    """Counts what `go build -v` says and tells the user, at most once a second."""

    version: str
    report: Reporter
    downloaded: int = 0
    compiled: int = 0
    last_lines: tuple[str, ...] = ()

    def read(self, lines: Iterable[str]) -> None:
        started = told = time.monotonic()
        for line in lines:
            if line.startswith("go: downloading "):
                self.downloaded += 1
            elif " " not in line.strip():
                self.compiled += 1
            else:
                self.last_lines = (*self.last_lines, line.strip())[-_LAST_LINES:]
            if time.monotonic() - told >= 1:
                told = time.monotonic()
                self._tell(told - started)

    def _tell(self, seconds: float) -> None:
        detail = f"building: {self.compiled} packages compiled"
        if not self.compiled:
            detail = f"building: {self.downloaded} modules fetched"
        self.report(
            Progress("engine", f"pulumi v{self.version}", "running", detail, round(seconds))
        )


def _compile(command: list[str], folder: Path, env: dict[str, str], watch: _Watch) -> None:
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches us alone, and we end the compilers below
    )
    try:
        assert process.stderr is not None
        watch.read(process.stderr)
        status = process.wait()
    finally:
        end_group(process)
    if status:
        raise InfraError(
            f"go build ended with {status}: {' '.join(watch.last_lines) or 'no output'}",
            "open HTTPS to the Go module proxy (GOPROXY), and have 4 GiB of disk free",
        )


def end_group(process: subprocess.Popen[str]) -> None:
    """Nothing of a process that leads its own session runs any more."""
    if process.poll() is None:
        os.killpg(process.pid, 9)
        process.wait()
    if process.stderr is not None:
        process.stderr.close()
