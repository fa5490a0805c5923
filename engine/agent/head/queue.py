"""The runs of a cluster, on its head: the nodes that each holds, and the order of those that wait.

The file QUEUE in the folder of all runs has a line `RUN STATE NODES` per run; its order is the
order of the queue. All changes are made under one lock, so that a run gets all its nodes or none.
A line counts as long as a process holds the run's folder (locks.protect_folder). If the supervisor
was killed, it counts as long as another one may take the run up, or the nodes may still have
processes of it (handover.holds_nodes). Nobody starts runs: each supervisor waits for its own turn.

A client that changes the cluster holds a lock on the head, until it disconnects. Clients of several
machines may follow one run. `healing` lets one of them make lost nodes again. `removal` lets one of
them remove the cluster, if no other run is on it, and no run begins then. `down` is for a person
who removes it with its runs. Nobody heals while a client removes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from engine.agent.journal.journal_file import JOURNAL
from engine.agent.journal.locks import is_held, locked, protect_folder, take
from engine.agent.journal.run_secrets_file import holds_nodes, remove_handover
from engine.contract.names import BUSY, HEALING, HEALS, HELD, QUEUE, REMOVAL, REMOVES, TAKEN
from engine.contract.verdict import REFUSED

WAITING = "waiting"
STARTED = "started"
LEAVING = "leaving"
"""The state of a run that is over and powers all nodes off: no other run may begin."""


@dataclass(frozen=True)
class Entry:
    """A run on the cluster: the names of its nodes, and its state."""

    run_id: str
    nodes: tuple[str, ...]
    state: str = WAITING


Entries = tuple[Entry, ...]
Place = tuple[int, tuple[str, ...]]
"""The place of a run that waits, from 1, and the runs that it waits for."""


def runs_ahead(entries: Entries, run_id: str) -> tuple[str, ...]:
    """Return the runs that a waiting run has to wait for, in the order of the queue.

    They share a node with it, and hold it or wait in front of it. A run never overtakes another
    one that waits for one of its nodes, so that a run of many nodes gets its turn.
    """
    own = _find(entries, run_id)
    place = entries.index(own)

    def is_ahead(number: int, other: Entry) -> bool:
        if other.state == LEAVING:
            return True
        shares_a_node = bool(set(other.nodes) & set(own.nodes))
        return shares_a_node and (other.state == STARTED or number < place)

    return tuple(
        other.run_id
        for number, other in enumerate(entries)
        if other != own and is_ahead(number, other)
    )


def waiting_runs(entries: Entries) -> tuple[str, ...]:
    """Return the runs that wait, in the order of the queue."""
    return tuple(entry.run_id for entry in entries if entry.state == WAITING)


def move_run(entries: Entries, run_id: str, place: int) -> Entries:
    """Return the entries with the run at `place` (from 1) among those that wait, or as the last.

    Return them unchanged if the run does not wait.
    """
    if run_id not in waiting_runs(entries):
        return entries
    own = _find(entries, run_id)
    waiting = [entry for entry in entries if entry.state == WAITING and entry != own]
    waiting.insert(place - 1, own)
    return (*(entry for entry in entries if entry.state != WAITING), *waiting)


def set_state(entries: Entries, run_id: str, state: str) -> Entries:
    """Return the entries with the run in this state."""
    return tuple(
        replace(entry, state=state) if entry.run_id == run_id else entry for entry in entries
    )


def _find(entries: Entries, run_id: str) -> Entry:
    return next(entry for entry in entries if entry.run_id == run_id)


class Dropped(Exception):
    """The run was taken out of the queue."""


class Queue:
    """The queue of the cluster whose runs have their folders in `runs`."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs

    def runs_in_the_way(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the runs because of which a run on these nodes could not start now."""
        with self._locked() as entries:
            return runs_ahead((*entries, Entry("", nodes)), "")

    def enter(self, run_id: str, nodes: tuple[str, ...], *, may_wait: bool) -> bool:
        """Add the run, whose folder this process holds; start it if nothing is in the way.

        Return False, and add nothing, if it would have to wait and may not, or if a run that is
        over powers the nodes off.
        """
        with self._locked() as others:
            if any(entry.run_id == run_id for entry in others):
                return True  # an earlier supervisor of the run has entered it
            entries = (*others, Entry(run_id, nodes))
            ahead = runs_ahead(entries, run_id)
            is_leaving = any(entry.state == LEAVING for entry in entries)
            if is_leaving or (ahead and not may_wait):
                return False
            self._write(entries if ahead else set_state(entries, run_id, STARTED))
            return True

    def try_start(self, run_id: str) -> Place | None:
        """Start the run and return None; or return its place and the runs ahead of it.

        Return None also for a run that has started. Raises Dropped.
        """
        with self._locked() as entries:
            if all(entry.run_id != run_id for entry in entries):
                raise Dropped
            if _find(entries, run_id).state == STARTED:
                return None
            ahead = runs_ahead(entries, run_id)
            if ahead:
                return waiting_runs(entries).index(run_id) + 1, ahead
            self._write(set_state(entries, run_id, STARTED))
            return None

    def move(self, run_id: str, place: int) -> bool:
        """Move the run to `place` (from 1) of the queue; return False if it does not wait."""
        with self._locked() as entries:
            if run_id not in waiting_runs(entries):
                return False
            self._write(move_run(entries, run_id, place))
            return True

    def drop(self, run_id: str) -> bool:
        """Take the run out of the queue, which ends it; return False if it does not wait."""
        with self._locked() as entries:
            if run_id not in waiting_runs(entries):
                return False
            self._write(tuple(entry for entry in entries if entry.run_id != run_id))
            return True

    def close_cluster(self, run_id: str) -> bool:
        """Let no other run begin as long as this process lives: the cluster is removed.

        Return False, and change nothing, if other runs are on the cluster or wait for it.
        """
        with self._locked() as entries:
            if any(entry.run_id != run_id for entry in entries):
                return False
            protect_folder(self._runs / run_id)  # its line counts as long as it is held
            # A run whose supervisor was lost may have no line any more.
            nodes = entries[0].nodes if entries else ("-",)
            self._write((Entry(run_id, nodes, LEAVING),))
            return True

    def describe(self) -> str:
        """Return two lines per run that lives: its entry, and the first line of its journal.

        It takes no lock and changes nothing.
        """
        return "".join(
            f"{_line(entry)}{self._first_event(entry.run_id)}\n"
            for entry in self._read()
            if self._lives(entry.run_id)
        )

    def _first_event(self, run_id: str) -> str:
        with contextlib.suppress(OSError), (self._runs / run_id / JOURNAL).open() as journal:
            return journal.readline().strip()
        return ""  # the run is about to begin, or its disk was full

    def leave(self, run_id: str) -> None:
        """Remove the run: its nodes are free."""
        with self._locked() as entries:
            self._write(tuple(entry for entry in entries if entry.run_id != run_id))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Entries]:
        """Hold the lock; yield the entries of the runs that live, and forget the others."""
        with locked(self._runs):
            entries = tuple(self._read())
            living = tuple(entry for entry in entries if self._lives(entry.run_id))
            for entry in entries:
                if entry not in living:  # no supervisor has come back, and no process is left
                    remove_handover(self._runs / entry.run_id)
            yield living

    def _lives(self, run_id: str) -> bool:
        folder = self._runs / run_id
        return folder.is_dir() and (is_held(folder) or holds_nodes(folder))

    def _read(self) -> Iterator[Entry]:
        path = self._runs / QUEUE
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for run_id, state, names in (line.split(" ") for line in lines):
            yield Entry(run_id, tuple(names.split(",")), state)

    def _write(self, entries: Entries) -> None:
        """Write the file anew, whole or not at all."""
        part = self._runs / f"{QUEUE}.part"
        part.write_text("".join(map(_line, entries)), encoding="utf-8")
        part.replace(self._runs / QUEUE)


def _line(entry: Entry) -> str:
    return f"{entry.run_id} {entry.state} {','.join(entry.nodes)}\n"


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


def hold(folder: Path, what: str) -> int:
    """Hold the lock until stdin ends; return 0.

    First print a line: `held`; `taken`, if another client holds the lock; `heals` or `removes`, if
    another client does that meanwhile; or `busy`, if other runs keep the cluster from removal.
    Unless it is `held`, return at once.
    """
    # Clients decide one after the other, and a refused one holds nothing meanwhile.
    with locked(folder.parent, "holding.lock"):
        answer = _take(folder, what)
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()
    if answer == HELD:
        while os.read(0, 4096):
            pass  # the end of input is what counts
    return 0


def _take(folder: Path, what: str) -> str:
    """Take the lock, unless another client prevents it; return the answer.

    For a removal that is not `down`'s, close the cluster for runs.
    """
    name, other = (HEALING, REMOVAL) if what == HEALING else (REMOVAL, HEALING)
    if _is_held(folder, name):
        return TAKEN
    if _is_held(folder, other):
        return HEALS if other == HEALING else REMOVES
    if what == REMOVAL and not Queue(folder.parent).close_cluster(folder.name):
        return BUSY
    take(_path(folder, name))
    return HELD


def _is_held(folder: Path, name: str) -> bool:
    path = _path(folder, name)
    return path.exists() and is_held(path)


def _path(folder: Path, name: str) -> Path:
    return folder.parent / f"{name}.lock"
