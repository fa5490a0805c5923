"""What somebody needs who is asked for help: versions, checks, logs, events of runs, records.

No secret is in it (config/sensitive.py), and nothing that a job printed.
"""

import io
import json
import platform
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from config.errors import InputError
from config.files import os_errors_as, write_named_file
from config.folders import kept_logs
from config.sensitive import SecretsOfEnvironment
from config.version import gpuctl_version
from engine.record.events import event_json, has_output
from engine.record.journal_copy import recorded_events
from operations.chosen_target import ChosenTarget
from operations.doctor import checks
from operations.known import kept_run
from operations.watcher import LoggingWatcher, Watcher

_PACKAGES = ("boto3", "botocore", "pulumi", "pulumi-aws", "pydantic", "typer", "asyncssh", "moto")


def pack_support(
    chosen: ChosenTarget,
    to: Path,
    *,
    runs: Sequence[str] = (),
    watcher: Watcher = LoggingWatcher(),
) -> tuple[str, ...]:
    """Write a tar archive, packed by gzip, for somebody who helps; return the names in it.

    It has versions and checks of this machine, the logs of commands, the records of clusters, and
    the events of these runs, by id or name. Raises InputError for a run that nobody knows, and if
    the file cannot be written.
    """
    secrets, names = SecretsOfEnvironment(), list[str]()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in _texts(chosen, runs, watcher):
            data = secrets.hide(text).encode()
            entry = tarfile.TarInfo(f"gpuctl-support/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(data))
            names.append(name)
    with os_errors_as(InputError, f"{to} cannot be written", "name another file"):
        write_named_file(to, packed.getvalue())
    return tuple(names)


def _texts(
    chosen: ChosenTarget, runs: Sequence[str], watcher: Watcher
) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the archive's files."""
    for name in runs:  # first: a run that nobody knows ends it
        run_id = kept_run(chosen, name, watcher=watcher).run_id
        events = recorded_events(chosen.runs, run_id)
        lines = (event_json(event) for event in events if not has_output(event))
        yield f"runs/{run_id}.jsonl", "".join(f"{line}\n" for line in lines)
    yield "about.json", json.dumps(_about(chosen), indent=2)
    for path in kept_logs():
        yield f"logs/{path.name}", path.read_text(errors="replace")
    for path in sorted((chosen.state / "clusters").glob("*/*.json")):
        yield f"clusters/{path.parent.name}/{path.name}", path.read_text(errors="replace")


def _about(chosen: ChosenTarget) -> dict[str, object]:
    return {
        "gpuctl": gpuctl_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "checks": [asdict(check) for check in checks(chosen)],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
