"""The examination of a node at the end of its job, by the node's worker.

It is limited in time and size, and no error leaves it: a source that cannot be read adds nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from engine.agent.journal.redaction import Redaction
from engine.agent.node.kernel_log import KernelLog
from engine.contract.names import ERROR_FILE
from engine.contract.worker_events import NodeFact

LIMIT_S = 3.0
SET_BACK_S = 1.0  # a smaller step of the clock is not reported
_TEXT = 300  # characters of a fact


class Examination:
    """The examination of this node, from the job's start on.

    `folder` is the run's, `start` the folder in which the job starts, `now` the node's clock.
    """

    def __init__(self, folder: Path, start: Path, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._folder, self._start = folder, start
        self._log = KernelLog()
        self._kills = _counted_kills()
        self._offset = now() - time.monotonic()
        self._began = now()

    def facts(self, hidden: Iterable[str], most_s: float = LIMIT_S) -> tuple[NodeFact, ...]:
        """Return what was found within `most_s`, without the values `hidden`."""
        facts: list[NodeFact] = []
        # A file system that hangs must not keep the worker.
        thread = threading.Thread(target=self._examine, args=(facts,), daemon=True)
        thread.start()
        thread.join(most_s)
        return tuple(NodeFact(fact.kind, _redacted(fact.text, hidden)) for fact in facts[:])

    def _examine(self, facts: list[NodeFact]) -> None:
        """Add facts to `found`; those that cannot hang come first."""
        # Many workers start at once, and few need it.
        from engine.agent.node import node_facts  # noqa: PLC0415

        lines = self._log.lines()
        self._log.close()
        kills = _counted_kills() - self._kills
        facts += node_facts.memory_facts(lines, _own_groups(), kills)
        facts += node_facts.gpu_facts(lines)
        facts += self._clock_facts()
        facts += node_facts.error_facts(self._folder / ERROR_FILE)
        facts += node_facts.crash_facts(lines, self._start, self._began)
        facts += node_facts.disk_facts((self._folder, self._start))

    def _clock_facts(self) -> list[NodeFact]:
        step = (self._now() - time.monotonic()) - self._offset
        if step > -SET_BACK_S:
            return []
        text = f"its clock was set back by {-step:.0f} s during the run"
        return [NodeFact("clock", text)]


def _redacted(text: str, hidden: Iterable[str]) -> str:
    redaction = Redaction(hidden)
    return (redaction.feed(text) + redaction.rest())[:_TEXT]


def start_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder in which a job with this environment starts."""
    return Path(environment.get("GPUCTL_WORKDIR") or environment.get("HOME", "/"))


def _own_groups() -> list[str]:
    """Return the paths of the memory control groups of this process: cgroups(7)."""
    groups = {}
    with contextlib.suppress(OSError):  # no /proc: no facts about memory
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, names, path = line.split(":", 2)
            groups.update(dict.fromkeys(names.split(","), path))
    # With both versions mounted, memory is v1's, and the line of v2 (without a name) says "/".
    own = groups.get("memory", groups.get(""))
    return [] if own is None else [own]


def _counted_kills() -> int:
    """Return how many processes of this unit the kernel has killed for memory; 0 if not known.

    `oom_kill N` is in memory.events with cgroup v2, in memory.oom_control with v1.
    """
    root = "/sys/fs/cgroup"
    for group in _own_groups():
        for path in (f"{root}{group}/memory.events", f"{root}/memory{group}/memory.oom_control"):
            with contextlib.suppress(OSError, ValueError):  # the other version of cgroups
                words = Path(path).read_text(encoding="utf-8").split()
                return int(words[words.index("oom_kill") + 1])
    return 0
