"""Lines of a run on the terminal: prefixes, equal lines folded, progress bars in place.

Some lines have a tag that names their rank. Open MPI's --tag-output (`[1,5]<stdout>:`), PRRTE's
with its namespace, and horovodrun's (`[5]<stdout>:`); docs/look-up/nccl-tables.md has the sources.
PyTorch prints `[rank5]:` before exceptions and errors of NCCL, and torchrun's --tee before each
line (engine/plan/modes/torchrun.py asks for that). Other tags name no rank of the job, such as
torchrun's `[default0]:` with the number on its node, or look like a job's own text, such as `5: `
of srun.
"""

import asyncio
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cli.terminal import COLOUR, can_redraw
from config.folded_names import fold
from config.quantities import size
from operations import run_client

if TYPE_CHECKING:
    from cli.output import Output as Out
    from engine.contract.head_events import OutputDropped
    from operations.run_client import Line


_TAG = re.compile(
    r"\[(?:[\w.@-]*,)?(\d{1,6})\](?:\[[^\]\s]*\])?<std(?:out|err)>:? ?"
    r"|\[rank(\d{1,6})\]: ?"
)
_MARKS = ("<std", "[rank")
"""Each tag has one of them: a text without them has no tag."""


def may_have_tag(text: str) -> bool:
    """Return whether a line of the text may have a tag; it is faster than a look for the tag."""
    return any(mark in text for mark in _MARKS)


def split_tag(text: str) -> tuple[int | None, str]:
    """Return the rank with which the line is tagged, None without one, and the rest.

    Tags of the same rank are one: a launcher's before PyTorch's own.
    """
    rank = None
    while may_have_tag(text) and (tag := _TAG.match(text)):
        number = int(tag[1] or tag[2])
        if rank not in (None, number):
            break
        rank, text = number, text[tag.end() :]
    return rank, text


_COLORS = (36, 33, 32, 35, 34, 31)  # of the prefixes, by node, or by the rank of a tag
_RESET = "\033[0m"
FOLD_S = 1.0
"""Seconds to wait for the same line of other ranks."""


class LineView:
    """Prints lines on stdout, each after its node's name, or after the rank of its tag.

    `names` are those of the nodes, in the order of their numbers in the run. `folds` prints equal
    lines of many nodes once.
    """

    def __init__(self, out: "Out", names: Sequence[str], folds: bool = False) -> None:
        self._out = out
        self.use_names(names)
        self._has_color = out.has_color
        self._folds = Folding(len(names)) if folds else None
        self._timer: asyncio.TimerHandle | None = None
        # A state is rewritten in place, which only a terminal can.
        self._shows_states = not out.as_json and not out.is_quiet and can_redraw(sys.stdout)
        self._has_state = False

    def use_names(self, names: Sequence[str]) -> None:
        """Use these names from now on: another attempt may have other nodes."""
        self._names = names
        self._width = max(map(len, names), default=0)
        self._prefixes: dict[int, str] = {}

    def show(self, lines: Sequence["Line"]) -> None:
        """Print the lines; folded ones when no other rank can join them any more."""
        if not lines:
            return
        if self._folds is None:
            self._print(((line.rank,), line.text) for line in lines)
            return
        for line in lines:
            self._print(self._folds.add(line))
        self._print_later()

    def show_text(self, rank: int, text: str) -> bool:
        """Print whole lines of a node at once; return False, with nothing done, if it cannot.

        It can print lines that reach the terminal as they are: without folding, tags, colours and
        carriage returns.
        """
        if self._folds is not None or may_have_tag(text):
            return False
        if not text.replace("\n", "").isprintable():
            return False
        prefix = self._prefix((rank,))
        self.clear()
        self._out.pass_on(prefix + text.replace("\n", f"\n{prefix}"))
        return True

    def show_state(self, rank: int, text: str) -> None:
        """Show a node's unfinished line in the last row, until something else is printed."""
        if not self._shows_states or not text:
            return
        self._out.rewrite(self._prefix((rank,)) + text)
        self._has_state = True

    def clear(self) -> None:
        """Remove the unfinished line from the terminal, if one is shown."""
        if self._has_state:
            self._has_state = False
            self._out.rewrite("")

    def rest(self) -> None:
        """Print what waits for other ranks."""
        if self._folds is not None:
            self._print(self._folds.rest())

    def _print(self, groups: Iterable[tuple[Sequence[int], str]]) -> None:
        rows = []
        for ranks, text in groups:
            # A line whose colour does not end must not colour the lines of others.
            end = _RESET if "\033[" in text and COLOUR.search(text) else ""
            tagged, rest = split_tag(text)
            if tagged is None:
                prefix = self._prefix(ranks)
            else:
                prefix = self._colored(f"[rank {tagged}] ", _COLORS[tagged % len(_COLORS)])
            rows.append(f"{prefix}{rest}{end}")
        if rows:
            self.clear()
            self._out.pass_on("\n".join(rows))

    def _prefix(self, ranks: Sequence[int]) -> str:
        if len(ranks) > 1:
            return self._colored(f"{fold(node_name(self._names, rank) for rank in ranks)} ", 1)
        (rank,) = ranks
        if rank not in self._prefixes:
            text = f"[{node_name(self._names, rank)}]".ljust(self._width + 3)
            self._prefixes[rank] = self._colored(text, _COLORS[rank % len(_COLORS)])
        return self._prefixes[rank]

    def _colored(self, text: str, code: int) -> str:
        return f"\033[{code}m{text}{_RESET}" if self._has_color else text

    def _print_later(self) -> None:
        """Print what waits when its time is over; without an event loop `rest` does."""
        if self._timer is not None or self._folds is None or not self._folds.is_waiting:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._timer = loop.call_later(FOLD_S, self._print_due)

    def _print_due(self) -> None:
        assert self._folds is not None
        self._timer = None
        self._print(self._folds.due(time.monotonic()))
        self._print_later()


def node_name(names: Sequence[str], rank: int) -> str:
    """Return the name of the node with this number in the run; a node may send a wrong number."""
    return names[rank] if rank < len(names) else f"node number {rank}"


class Folding:
    """Lines that wait for equal lines of other ranks, FOLD_S seconds at most.

    The lines of each rank keep their order.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._waiting: deque[_Group] = deque()
        self._by_text: dict[str, _Group] = {}
        self._last: dict[int, int] = {}
        """The number of each rank's newest group."""
        self._count = 0

    @property
    def is_waiting(self) -> bool:
        """Return whether lines wait."""
        return bool(self._waiting)

    def add(self, line: "Line") -> list[tuple[list[int], str]]:
        """Add the line; return the groups of ranks and their line that are complete or too old."""
        group = self._by_text.get(line.text)
        if group is None or self._last.get(line.rank, -1) >= group.number:
            self._count += 1
            group = _Group(self._count, line)
            self._waiting.append(group)
            self._by_text[line.text] = group
        group.ranks.append(line.rank)
        self._last[line.rank] = group.number
        return self._take(
            lambda first: len(first.ranks) == self._nodes or line.time - first.time > FOLD_S
        )

    def due(self, now: float) -> list[tuple[list[int], str]]:
        """Return the groups that have waited FOLD_S seconds at the monotonic time `now`."""
        return self._take(lambda first: now - first.arrived >= FOLD_S)

    def rest(self) -> list[tuple[list[int], str]]:
        """Return all groups that wait."""
        return self._take(lambda _: True)

    def _take(self, is_ready: Callable[["_Group"], bool]) -> list[tuple[list[int], str]]:
        taken = []
        while self._waiting and is_ready(self._waiting[0]):
            group = self._waiting.popleft()
            if self._by_text.get(group.text) is group:
                del self._by_text[group.text]
            taken.append((sorted(group.ranks), group.text))
        return taken


class _Group:
    """A line, and the ranks that printed it."""

    def __init__(self, number: int, line: "Line") -> None:
        self.number, self.text, self.time = number, line.text, line.time
        self.arrived = time.monotonic()
        self.ranks: list[int] = []


def dropped_lines(event: "OutputDropped") -> list["Line"]:
    """Return a line for each rank whose output was removed: how much, and of what time."""
    return [
        run_client.Line(
            dropped.until,
            dropped.rank,
            "gpuctl",  # in the place of `stdout`: no rank has printed it
            f"… {size(dropped.size)} of output from {_moments(dropped.since, dropped.until)}"
            " were not kept",
        )
        for dropped in event.ranks
    ]


def _moments(since: float, until: float) -> str:
    """Return two times of one day as `10:02:00 to 11:40:00 UTC`, others with their dates."""
    first, last = (datetime.fromtimestamp(moment, UTC) for moment in (since, until))
    form = "%H:%M:%S" if first.date() == last.date() else "%Y-%m-%d %H:%M:%S"
    return f"{first:{form}} to {last:{form}} UTC"
