"""Pulumi's engine by the Automation API's own installer: the normal way on an open network."""

import subprocess
import sys
import time
from pathlib import Path

from config.errors import InfraError
from config.progress import Progress, Reporter
from infra.engine_build import end_group

_CONNECT_TIMEOUT_S = 60
_LIMIT_S = 900
_INSTALL = """
import socket, subprocess, sys
from semver import VersionInfo
from pulumi.automation import PulumiCommand
socket.setdefaulttimeout(float(sys.argv[3]))
try:
    PulumiCommand.install(root=sys.argv[1], version=VersionInfo.parse(sys.argv[2]))
except subprocess.CalledProcessError as error:
    sys.exit((error.output or b"").decode(errors="replace").strip() or str(error))
except Exception as error:
    sys.exit(str(getattr(error, "reason", None) or error))
"""


def download_engine(version: str, root: Path, report: Reporter) -> None:
    """`root/bin/pulumi` is Pulumi's engine as released by Pulumi.

    The installer has no time limits, so it runs in a process of its own that has them: 60 s to
    connect, 15 minutes in all. Raises InfraError with the installer's last line.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _INSTALL, root, version, str(_CONNECT_TIMEOUT_S)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said = _follow(process, version, report)
    finally:
        end_group(process)
    if process.returncode:
        raise InfraError(
            f"get.pulumi.com gave none ({said or f'exit status {process.returncode}'})",
            "open HTTPS to get.pulumi.com",
        )


def _follow(process: subprocess.Popen[str], version: str, report: Reporter) -> str:
    """The last line of what the installer said; elapsed seconds are reported meanwhile."""
    started = time.monotonic()
    while (seconds := time.monotonic() - started) < _LIMIT_S:
        try:
            _, errors = process.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            detail = "downloading from get.pulumi.com"
            report(Progress("engine", f"pulumi v{version}", "running", detail, round(seconds)))
        else:
            return errors.strip().rpartition("\n")[2]
    raise InfraError(
        f"get.pulumi.com gave none within {_LIMIT_S // 60} minutes", "open HTTPS to get.pulumi.com"
    )
