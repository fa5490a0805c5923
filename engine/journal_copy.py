"""The client's copy of a run's journal, which `gpuctl logs` prints after the cluster is gone.

The copy has the same bytes as the beginning of the journal on the head. So its length is the offset
from which to follow on, and two clients of the same run write the same bytes to the same offsets.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from config.errors import RunError
from engine.events import Event, parse_event


class JournalCopy:
    """The copy of one run's journal."""

    def __init__(self, runs: Path, run_id: str) -> None:
        self._path = runs / run_id / "journal.jsonl"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise RunError(
                f"{self._path} cannot be written: {error.strerror}",
                "make the state folder writable",
            ) from error
        # An incomplete last line is from a client that died while it wrote the line.
        self.offset = _whole_lines_length(self._path)

    def append(self, line: str) -> None:
        """Write the line at `offset`, and advance `offset`."""
        data, written = line.encode() + b"\n", 0
        try:
            while written < len(data):  # a disk that becomes full accepts only a part
                written += os.pwrite(self._file, data[written:], self.offset + written)
        except OSError as error:
            raise RunError(
                f"{self._path} cannot be written: {error.strerror}", "free space on the disk"
            ) from error
        self.offset += len(data)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def recorded_events(runs: Path, run_id: str) -> Iterator[Event]:
    """Yield the events of the copy; none for a run without a copy.

    Raises RunError if the file is damaged.
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
                    f"{path} is damaged: {error}",
                    f"remove the file; `gpuctl logs {run_id} -f` fetches it again",
                ) from error
            if event is not None:
                yield event


def evidence_folder(runs: Path, run_id: str) -> Path:
    """Return the folder with the evidence about lost nodes; it exists only if a node was lost."""
    return runs / run_id / "evidence"


OUTPUTS = "outputs"
"""The folder in a run's folder with its outputs, which gpuctl never removes."""


def outputs_folder(runs: Path, run_id: str) -> Path:
    """Return the folder with the run's outputs; it exists only if some came back."""
    return runs / run_id / OUTPUTS


def write_evidence(folder: Path, node: str, source: str, text: str) -> None:
    """Write the evidence that `source` showed about a lost node to `NODE/SOURCE.txt`."""
    # Both names come from a machine on which the job was root, so only their last part is used.
    path = folder / Path(node).name / f"{Path(source).name}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{path} cannot be written: {error.strerror}", "free space on the disk"
        ) from error


def _whole_lines_length(path: Path) -> int:
    length = 0
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                length += len(line)
    return length
