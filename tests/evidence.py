"""What a failing test leaves to look at: `build/test-evidence/TEST/`, named in its message.

Files of the test's own folders (runs' journals above all, logs of its sshds), the consoles of the
machines and the daemon's log of this worker's labs, what the commands printed, and the errors of
the API and the provider. Kept small: the end of each file. The message has the last events of the
runs too: of a machine that is gone there is nothing else.

`python -m tests.evidence LAB FOLDER` keeps the consoles and the log of one lab: `scripts/demo`.
"""

import os
import re
import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from engine.agent.journal.journal_file import JOURNAL
from lab.places import Places, everywhere
from tests.labs import WORKER
from tests.processes import ERRORS

FOLDER = Path("build/test-evidence")
KEPT = 256 * 1024
"""Bytes of each file, its last ones."""

MOST_FILES = 60
JOURNALS = f"**/{Path(JOURNAL).stem}*"
MOST_JOURNALS = 4
LAST_EVENTS = 6
OUTPUT = '"kind": "output"'
LABS = Path(os.environ.get("GPUCTL_TEST_LABS", "/"))
"""The root folder of the machine with the labs."""

_printed: list[str] = []


def note(text: str) -> None:
    """Keep what a command of the current test printed."""
    _printed.append(text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _printed.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    # Before teardown: machines and their consoles still exist.
    report = yield
    if report.failed:
        folder = item.config.rootpath / FOLDER / re.sub(r"[^\w.-]+", "-", item.nodeid)[-150:]
        report.sections.append(("Evidence", _collect(item, folder)))
    return report


def _collect(item: pytest.Item, folder: Path) -> str:
    """Copy what there is; return what to tell. No failure here may hide the test's own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        if _printed:
            (folder / "commands.txt").write_text("\n".join(_printed)[-KEPT:])
        if size := os.fstat(ERRORS.fileno()).st_size:
            last = os.pread(ERRORS.fileno(), KEPT, max(0, size - KEPT))
            (folder / "errors.txt").write_bytes(last)
        for path, name in list(_sources(item))[:MOST_FILES]:
            _copy(path, folder / name)
        last_events = list(_last_events(item))
    except OSError as error:
        return f"{folder} (not all of it: {error})"
    if not any(folder.iterdir()):
        folder.rmdir()
        return "none: no run, no machine, no command"
    return "\n".join([str(folder), *last_events])


def _sources(item: pytest.Item) -> Iterator[tuple[Path, str]]:
    """Files to keep, and their names there."""
    for lab in everywhere(LABS):
        if lab.name.startswith("t-") and lab.name.endswith(f"-{WORKER}"):
            yield from _of_lab(lab)
    for home in _homes(item):
        logs, runs = home.glob("sshd*/log"), (*home.glob("**/runs/**/*"), *home.glob(JOURNALS))
        for path in (*logs, *sorted(runs, key=_age)):
            if path.is_file():
                yield path, str(path.relative_to(home))


def _homes(item: pytest.Item) -> Iterator[Path]:
    given = getattr(item, "funcargs", {})
    folders = (
        given.get("tmp_path"),
        getattr(given.get("gpuctl"), "home", None),
        getattr(given.get("cluster"), "folder", None),
    )
    yield from map(Path, filter(None, folders))


def _last_events(item: pytest.Item) -> Iterator[str]:
    """The last events of the newest runs, without output."""
    for home in _homes(item):
        journals = sorted(filter(Path.is_file, home.glob(JOURNALS)), key=_age)
        for journal in journals[:MOST_JOURNALS]:
            events = [line for line in journal.read_text().splitlines() if OUTPUT not in line]
            yield f"{journal.relative_to(home)}:"
            yield from (event[:400] for event in events[-LAST_EVENTS:])


def _of_lab(lab: Places) -> Iterator[tuple[Path, str]]:
    yield lab.log, f"{lab.name}/daemon.log"
    for console in sorted(lab.machines.glob("*/console")):
        yield console, f"{lab.name}/consoles/{console.parent.name}"


def _age(path: Path) -> float:
    """The newest files come first: a shared folder has the runs of earlier tests too."""
    return -path.stat().st_mtime


def _copy(path: Path, to: Path) -> None:
    if not path.is_file():
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - KEPT))
        to.write_bytes(file.read())


if __name__ == "__main__":
    for source, kept_as in _of_lab(Places(sys.argv[1], LABS)):
        _copy(source, Path(sys.argv[2]) / kept_as)
