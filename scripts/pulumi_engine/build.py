"""The build of Pulumi's engine from the Go modules that `source/` pins.

It works in a closed network that has a Go module proxy. `go install …@version` refuses the
engine's module because it has replace directives. The module in `source/` therefore names it as a
tool, with every dependency's hash in go.sum.
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
from infra.stack.installation import VERSION
from scripts.pulumi_engine.go_toolchain import SOURCE, ensure_go, go_folder

_PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
_VERSION_VARIABLE = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
_LAST_LINES = 3


def build_engine(root: Path, report: Reporter) -> None:
    """Build Pulumi's engine as `root/bin/pulumi`; `root` is an empty folder.

    This takes about 3 minutes on 2 cores. Raises InfraError with the last lines of Go's output.
    """
    go = ensure_go(report)
    sources = root / "source"
    shutil.copytree(SOURCE, sources)
    (root / "tmp").mkdir()
    command = [
        str(go),
        "build",
        "-v",
        "-mod=readonly",
        "-modcacherw",
        "-trimpath",
        "-buildvcs=false",
        # The Automation API refuses an engine that does not report its version.
        "-ldflags",
        f"-s -w -X {_VERSION_VARIABLE}=v{VERSION}",
        "-o",
        str(root / "bin" / "pulumi"),
        _PACKAGE,
    ]
    _compile(command, sources, _environment(go, root / "tmp"), _Watch(report))
    shutil.rmtree(sources)
    shutil.rmtree(root / "tmp")
    if go.is_relative_to(go_folder()):
        # Nothing else on this machine uses this gigabyte of compiled packages.
        for folder in ("build", "path"):
            shutil.rmtree(go_folder() / folder, ignore_errors=True)  # what stays only takes space


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
    """A reader of `go build -v` that reports the progress, at most once a second."""

    report: Reporter
    downloaded: int = 0
    compiled: int = 0
    last_lines: tuple[str, ...] = ()

    def read(self, lines: Iterable[str]) -> None:
        started = reported = time.monotonic()
        for line in lines:
            if line.startswith("go: downloading "):
                self.downloaded += 1
            elif " " not in line.strip():
                self.compiled += 1
            else:
                self.last_lines = (*self.last_lines, line.strip())[-_LAST_LINES:]
            if time.monotonic() - reported >= 1:
                reported = time.monotonic()
                self._report(reported - started)

    def _report(self, seconds: float) -> None:
        detail = f"building: {self.compiled} packages compiled"
        if not self.compiled:
            detail = f"building: {self.downloaded} modules downloaded"
        self.report(Progress("engine", f"pulumi v{VERSION}", "running", detail, round(seconds)))


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
        start_new_session=True,  # Ctrl-C reaches only this program, which ends the compilers below
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
            "allow HTTPS to the Go module proxy (GOPROXY), and free 4 GiB of disk space",
        )


def end_group(process: subprocess.Popen[str]) -> None:
    """Kill a process that leads its own session, and all processes of that session."""
    if process.poll() is None:
        os.killpg(process.pid, 9)
        process.wait()
    if process.stderr is not None:
        process.stderr.close()
