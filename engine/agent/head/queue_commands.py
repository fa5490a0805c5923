"""What a client does with the queue of a head."""

from __future__ import annotations

import sys
from pathlib import Path

from engine.agent.head.queue import Queue
from engine.contract.exit_status import REFUSED


def show(runs: Path) -> int:
    """Print the runs that have nodes or wait for them; return 0."""
    sys.stdout.write(Queue(runs).describe())
    return 0


def move(folder: Path, place: str) -> int:
    """Move the run to `place` (from 1); return 0, or REFUSED if it does not wait."""
    return 0 if Queue(folder.parent).move(folder.name, int(place)) else REFUSED


def drop(folder: Path) -> int:
    """Take the run out of the queue; return 0, or REFUSED if it does not wait."""
    return 0 if Queue(folder.parent).drop(folder.name) else REFUSED
