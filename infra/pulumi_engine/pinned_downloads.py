"""Downloads that gpuctl uses only if their sha256 is pinned."""

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from pathlib import Path

from config.errors import InfraError
from config.progress import Progress, Reporter

SUMS = Path(__file__).parent / "source" / "SHA256SUMS"
_BLOCK = 1 << 20
_CONNECT_TIMEOUT_S = 60
_LIMIT_S = 900


def pinned_sha256(name: str) -> str | None:
    """Return the pinned sha256 of the file `name`, or None if there is none."""
    lines = (line for line in SUMS.read_text().splitlines() if not line.startswith("#"))
    return {file: sha256 for sha256, file in (line.split() for line in lines)}.get(name)


def fetch_pinned(url: str, path: Path, subject: str, report: Reporter, hint: str) -> None:
    """Download `url` to `path`; keep the file only if its sha256 is pinned under its name.

    A read waits at most 60 s, the whole download takes at most 15 minutes. Raises InfraError with
    `hint` if the download fails, and InfraError if the file has another sha256. The latter is also
    reported, because the caller may try another source. No file is left at `path` then.
    """
    try:
        actual = _download(url, path, subject, report)
    except (OSError, http.client.HTTPException) as error:
        path.unlink(missing_ok=True)
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise InfraError(f"{url} cannot be downloaded ({reason})", hint) from error
    expected = pinned_sha256(url.rpartition("/")[2])
    if actual != expected:
        path.unlink()
        message = f"{url} is not the pinned file and was removed: sha256 {actual}, not {expected}"
        report(Progress("engine", subject, "failed", message))
        raise InfraError(message, "find out which server or proxy sends another file")
    report(Progress("engine", subject, "done", url))


def _download(url: str, path: Path, subject: str, report: Reporter) -> str:
    """Download `url` to `path`, and return the file's sha256."""
    digest = hashlib.sha256()
    started = time.monotonic()
    with urllib.request.urlopen(url, timeout=_CONNECT_TIMEOUT_S) as answer, path.open("wb") as file:  # noqa: S310
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
