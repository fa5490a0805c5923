"""The download of a released Pulumi engine, the usual source in an open network."""

import platform
import shutil
import sys
import tarfile
from pathlib import Path

from config.errors import InfraError
from config.progress import Reporter
from infra.pulumi_engine.pinned_downloads import fetch_pinned, pinned_sha256

RELEASES = "https://get.pulumi.com/releases/sdk"
_MACHINES = {"x86_64": "x64", "aarch64": "arm64"}
_ENGINE = "pulumi/pulumi"  # the archive also has language hosts; an inline program needs none


def download_engine(version: str, root: Path, report: Reporter) -> None:
    """Download the released Pulumi engine to `root/bin/pulumi`, only if its sha256 is pinned.

    Raises InfraError if no release is pinned for this machine, if the download fails, and if the
    file has another sha256.
    """
    machine = _MACHINES.get(platform.machine(), platform.machine())
    name = f"pulumi-v{version}-{sys.platform}-{machine}.tar.gz"
    if pinned_sha256(name) is None:
        raise InfraError(f"no sha256 is pinned for {name}", "install Pulumi yourself")
    archive = root / name
    subject = f"pulumi v{version} archive"
    fetch_pinned(f"{RELEASES}/{name}", archive, subject, report, "allow HTTPS to get.pulumi.com")
    (root / "bin").mkdir()
    try:
        with tarfile.open(archive) as files:
            source = files.extractfile(_ENGINE)
            assert source is not None
            with source, (root / "bin" / "pulumi").open("wb") as engine:
                shutil.copyfileobj(source, engine)
    except (KeyError, tarfile.TarError) as error:
        raise InfraError(
            f"{name} has no {_ENGINE} ({error})", "report this as a bug of gpuctl"
        ) from error
    (root / "bin" / "pulumi").chmod(0o755)
    archive.unlink()
