"""The verdict on a job that is silent, in one line: a pure function that compares its ranks.

A rank is named only for what it shows itself: it is stopped, it has no process, or it is elsewhere
in the program than the others. Where no rank differs, the verdict says that.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from engine.contract.worker_events import Frame, RankProcess

_COLLECTIVES = (
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/_functional_collectives.py",
    "/horovod/torch/mpi_ops.py",
    "/horovod/tensorflow/mpi_ops.py",
)
"""The files of functions that wait for all ranks."""
_LIBRARY = ("/lib/python", "/site-packages/", "/dist-packages/", "<")
"""Parts of the paths of files that are not the user's; `<frozen importlib._bootstrap>` is one."""
_STOPPED = {
    "T": f"stopped (by {signal.SIGSTOP.name} or {signal.SIGTSTP.name})",
    "t": "stopped by a debugger",
}
"""The kernel's states of a stopped process in words: proc(5)."""
_UNINTERRUPTIBLE = "D"
_MOST = 4  # ranks to name
_LARGEST = 1 << 20  # ranks of a job; a node may say anything


class Seen(NamedTuple):
    """A process of the job, and the name of its node."""

    node: str
    process: RankProcess


class HangVerdict(NamedTuple):
    """The verdict in one line. `node` is the one node of all ranks that it names, else None."""

    text: str
    node: str | None = None


class _Place(NamedTuple):
    """The place of a process in words, for a text behind `waits in`; equal in the same place."""

    text: str
    is_collective: bool = False


def judge_hang(
    seen: Sequence[Seen], nodes_of_ranks: Mapping[int, str], silent: Sequence[str]
) -> HangVerdict:
    """Return the verdict on the processes of all ranks.

    `nodes_of_ranks` has the nodes of ranks that have started, as far as it is known. `silent` are
    nodes that gave no evidence.
    """
    ranks = [each for each in seen if each.process.rank is not None]
    verdict = _judge(ranks or seen, nodes_of_ranks, bool(silent))
    if silent:
        text = f"{verdict.text}; no evidence from {_join(silent)}"
        return verdict._replace(text=text)
    return verdict


def _judge(
    seen: Sequence[Seen], nodes_of_ranks: Mapping[int, str], is_partial: bool
) -> HangVerdict:
    if not seen:
        return HangVerdict("no process of the job was found")
    for state, meaning in _STOPPED.items():
        stopped = [each for each in seen if each.process.state == state]
        if stopped:
            are = "is" if len(stopped) == 1 else "are"
            return HangVerdict(f"{_names(stopped)} {are} {meaning}", _node(stopped))
    missing = [] if is_partial else _missing(seen)
    if not missing:
        return _compare(seen)
    labels = [_label(rank, nodes_of_ranks.get(rank, "")) for rank in missing]
    have = "has" if len(missing) == 1 else "have"
    gone = f"{_join(labels)} {have} no process"
    places = {_place(each.process) for each in seen}
    if any(not place.is_collective for place in places) and any(e.process.frames for e in seen):
        # Those that are gone may have done their part: one that is left is busy elsewhere.
        verdict = _compare(seen, "the others")
        return verdict._replace(text=f"{verdict.text}; {gone}")
    nodes = {nodes_of_ranks.get(rank) for rank in missing}
    return HangVerdict(gone, nodes.pop() if len(nodes) == 1 else None)


def where(process: RankProcess) -> str:
    """Return what one process does, as a verdict says it: `waits in load (train.py:88)`."""
    if process.state in _STOPPED:
        return f"is {_STOPPED[process.state]}"
    return f"{_verb([Seen('', process)])} {_place(process).text}"


def _missing(seen: Iterable[Seen]) -> list[int]:
    """Return the ranks without a process, by the size of the job that the others know."""
    ranks = {each.process.rank for each in seen}
    sizes = {each.process.size for each in seen}
    if None in ranks or len(sizes) != 1:
        return []
    size = min(sizes.pop() or 0, _LARGEST)
    return [rank for rank in range(size) if rank not in ranks]


def _compare(seen: Sequence[Seen], all_ranks: str = "") -> HangVerdict:
    """Return the verdict by the places of the processes: where they are in the program, or else in
    the kernel. Those of which only others have a stack are left out.

    `all_ranks` says who they are together, if they are not all ranks of the job.
    """
    with_stack = [each for each in seen if each.process.frames]
    compared = with_stack or seen
    groups: dict[_Place, list[Seen]] = {}
    for each in compared:
        groups.setdefault(_place(each.process), []).append(each)
    left_out = [each for each in seen if each not in compared]
    unread = f"; the stack of {_names(left_out)} could not be read" if left_out else ""
    named = _outliers(groups)
    if named:
        texts = [f"{_names(groups[place])} {_verb(groups[place])} {place.text}" for place in named]
        others = {place: those for place, those in groups.items() if place not in named}
        text = f"{', '.join(texts)}; {'; '.join(_others(others))}{unread}"
        return HangVerdict(text, _node([each for place in named for each in groups[place]]))
    if len(groups) > 1:
        texts = [f"{_names(those)} {_verb(those)} {place.text}" for place, those in groups.items()]
        return HangVerdict("; ".join(texts) + unread)
    place, those = next(iter(groups.items()))
    if len(those) == 1:
        return HangVerdict(f"{_names(those)} {_verb(those)} {place.text}{unread}", _node(those))
    who = all_ranks or f"all {len(those)} ranks"
    who = who if those[0].process.rank is not None else _names(those)
    why = "no rank differs"
    if place.is_collective:
        why += ", so a link or a program outside the job may be silent"
    return HangVerdict(f"{who} {_verb(those)} {place.text}: {why}{unread}")


def _outliers(groups: Mapping[_Place, Sequence[Seen]]) -> list[_Place]:
    """Return the places of the ranks to name; none where no rank differs from a majority.

    Ranks in a collective wait for those that are not, if these are at most half of all.
    """
    total = sum(map(len, groups.values()))
    absent = [place for place in groups if not place.is_collective]
    if 0 < len(absent) < len(groups) and 2 * sum(len(groups[place]) for place in absent) <= total:
        return absent
    by_size = sorted(groups, key=lambda place: len(groups[place]))
    if len(groups) > 1 and 2 * len(groups[by_size[-1]]) > total:
        return by_size[:-1]
    return []


def _others(groups: Mapping[_Place, Sequence[Seen]]) -> Iterator[str]:
    for place, those in groups.items():
        count = "the other" if len(those) == 1 else f"the {len(those)} others"
        count = count if len(groups) == 1 else str(len(those))
        yield f"{count} {_verb(those)} {place.text}"


def _place(process: RankProcess) -> _Place:
    if not process.frames:
        if process.has_run:
            return _Place("the program")
        return _Place(f"the kernel's {process.wchan}" if process.wchan else "the kernel")
    kernel = ""
    if process.state == _UNINTERRUPTIBLE:
        kernel = f", which hangs in the kernel's {process.wchan or 'uninterruptible sleep'}"
    frames = process.frames
    number = next((number for number, frame in enumerate(frames) if _is_own(frame)), 0)
    own = frames[number]
    collective = next(filter(_is_collective, frames), None)
    if collective is not None:
        where = f" ({_at(own)})" if _is_own(own) else ""
        return _Place(f"{collective.function}{where}{kernel}", is_collective=True)
    called = f", in {_file(frames[number - 1])}" if number else ""
    return _Place(f"{own.function} ({_at(own)}{called}){kernel}")


def _is_own(frame: Frame) -> bool:
    return not any(part in frame.path for part in _LIBRARY) or frame.path == "<string>"


def _is_collective(frame: Frame) -> bool:
    return frame.path.endswith(_COLLECTIVES)


def _at(frame: Frame) -> str:
    return f"{_file(frame)}:{frame.line}"


def _file(frame: Frame) -> str:
    return frame.path.rpartition("/")[2]


def _verb(those: Sequence[Seen]) -> str:
    """Return what the processes do in their common place."""
    runs = all(each.process.has_run for each in those) and not any(
        _is_collective(frame) for each in those for frame in each.process.frames
    )
    verb = "run" if runs else "wait"
    return f"{verb}s in" if len(those) == 1 else f"{verb} in"


def _label(rank: int | None, node: str) -> str:
    if rank is None:
        return node
    return f"rank {rank} ({node})" if node else f"rank {rank}"


def _names(those: Sequence[Seen]) -> str:
    """Return the ranks with their nodes; processes without a rank have a pid if need be."""
    nodes = [each.node for each in those]
    labels = []
    for each in sorted(those, key=lambda each: (each.process.rank or 0, each.node)):
        label = _label(each.process.rank, each.node)
        if each.process.rank is None and nodes.count(each.node) > 1:
            label += f" (pid {each.process.pid})"
        labels.append(label)
    return _join(labels)


def _join(names: Sequence[str]) -> str:
    if len(names) > _MOST:
        return f"{', '.join(names[: _MOST - 1])} and {len(names) - _MOST + 1} more"
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _node(those: Iterable[Seen]) -> str | None:
    nodes = {each.node for each in those}
    return nodes.pop() if len(nodes) == 1 else None
