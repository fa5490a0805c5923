"""The JSON of nccl-tests (`-J FILE.json`, since 2.17.3), collected on the node.

Its `env` is the whole environment of the process, with secrets: it never leaves the node.
judge/tables.py reads the rest as a table, on the head: a worker does not import it.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

from engine.agent.node.job_files import read_job_file
from engine.contract.worker_events import ITERATIONS

_NAME = re.compile(r"nccl-tests-(\d+)-\w+\.json")
_MOST = 512 * 1024  # bytes of one event; larger tables are only read from the text


def collect(folder: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the documents that programs left in a run's folder, by case; delete the files.

    Incomplete and too large documents are omitted: the text output has the same rows.
    """
    documents = []
    for path in folder.glob("nccl-tests-*.json*"):
        name = _NAME.match(path.name)
        # The text output has the same rows.
        with contextlib.suppress(OSError, ValueError, RecursionError):
            document = json.loads(read_job_file(path))
            if name and isinstance(document, dict):
                kept = _without_surplus(document)
                if len(json.dumps(kept)) <= _MOST:
                    documents.append((int(name[1]), kept))
        with contextlib.suppress(OSError):  # nothing depends on the removal
            path.unlink()
    return sorted(documents, key=lambda entry: entry[0])


def _without_surplus(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without environment and without the times of single iterations."""
    kept = {name: value for name, value in document.items() if name != "env"}
    for row in kept.get("results", ()):
        for half in ("out_of_place_per_iter", "in_place_per_iter"):
            if isinstance(row.get(half), dict):
                row[half] = {name: row[half].get(name) for name in ITERATIONS}
    return kept
