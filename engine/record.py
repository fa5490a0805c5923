"""The client's copy of a run's journal: what `gpuctl logs` shows after the fleet is gone.

It is byte for byte a beginning of the journal on the head node, so its length is the place where
following goes on, and two clients that follow the same run write the same bytes to the same places.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from config.errors import RunError
from engine.events import Event, parse_event


class Record:
    """The copy of one run's journal."""

    def __init__(self, runs: Path, run_id: str) -> None:
        self._path = runs / run_id / "journal.jsonl"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise RunError(
                f"{self._path} cannot be written: {error.strerror}", "see to the state folder"
            ) from error
        # A last line without its end was being written when its client died.
        self.offset = _whole_lines_length(self._path)

    def append(self, line: str) -> None:
        """The line is in the copy, at `offset`, which is now behind it."""
        data, written = line.encode() + b"\n", 0
        try:
            while written < len(data):  # a disk that becomes full takes the beginning
                written += os.pwrite(self._file, data[written:], self.offset + written)
        except OSError as error:
            raise RunError(
                f"{self._path} cannot be written: {error.strerror}", "make room on the disk"
            ) from error
        self.offset += len(data)

    def close(self) -> None:
        """The file is closed."""
        os.close(self._file)


def recorded_events(runs: Path, run_id: str) -> Iterator[Event]:
    """Events of the copy, as far as it goes; nothing for a run that is not here.

    RunError where the file is not what gpuctl wrote.
    """
    path = runs / run_id / "journal.jsonl"
    if not path.exists():
        return
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n"):
                return
            try:
                event = parse_event(line)
            except ValueError as error:
                raise RunError(
                    f"{path} is damaged: {error}", "remove it; following the run fetches it again"
                ) from error
            if event is not None:
                yield event


def evidence_folder(runs: Path, run_id: str) -> Path:
    """Return the folder with what was seen of lost nodes; it exists only where a node was lost."""
    return runs / run_id / "evidence"


def write_evidence(folder: Path, node: str, source: str, text: str) -> None:
    """Write what `source` showed of a lost node to a file of its own: `NODE/SOURCE.txt`."""
    # Both names came from a machine on which the job was root: no path, only a name.
    path = folder / Path(node).name / f"{Path(source).name}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{path} cannot be written: {error.strerror}", "make room on the disk"
        ) from error


def _whole_lines_length(path: Path) -> int:
    length = 0
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                length += len(line)
    return length
