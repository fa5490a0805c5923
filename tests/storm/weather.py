"""A storm over a run: what hits it, and what must be true at its end.

The run has ranks that write a step after the other to their checkpoint. At random moments a failure
hits it. At the end every step of every rank was made once. What the run consists of, processes of
this machine or machines of the lab, is in processes.py and machines.py.
"""

import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STEPS = """
rank() {
  echo $BASHPID > $STORM/pid-$1; file=$GPUCTL_CHECKPOINT_DIR/steps-$1; touch $file
  step=$(wc -l < $file); echo "$1 begins after step $step in attempt $GPUCTL_RESTART_COUNT"
  until test -e $STORM/finish; do
    sleep 0.2
    if test -e $STORM/silent; then sleep 1000; fi
    if test -e $STORM/fail-$1; then fail=$(cat $STORM/fail-$1); rm $STORM/fail-$1; eval "$fail"; fi
    # The storage of the lab does not need the network. Real storage hangs while it is cut.
    until test "$(cat $LINK)" = 1; do sleep 0.2; done
    step=$((step + 1)); echo $step >> $file; echo "$1 makes step $step"
  done
}
for number in $(seq $PER_NODE); do
  rank $((GPUCTL_NODE_RANK * PER_NODE + number - 1)) &
done
for number in $(seq $PER_NODE); do wait -n || exit $?; done
"""
"""Ranks of a node. A file in $STORM lets one of them, or all, fail.

A step waits until the file LINK has a 1: shared storage of AWS hangs while a node's link is cut,
and that of the lab does not.
"""
SILENCE_S = 6
LIMIT_S = 600.0


def run_fields(nodes: int, per_node: int, **variables: str) -> dict[str, Any]:
    """Return the run file of a storm: it tries again whatever happens."""
    return {
        "type": "task",
        "name": "storm",
        "nodes": nodes,
        "commands": (STEPS,),
        "env": {"PER_NODE": str(per_node), **variables},
        "retry": {"attempts": 1000, "backoff": "1s", "node_wait": "5m"},
        "no_output_timeout": f"{SILENCE_S}s",
    }


@dataclass
class Storm(ABC):
    """A run and what hits it. Its ranks are numbered through all nodes."""

    ranks: int
    chance: random.Random
    hits: list[str] = field(default_factory=list)

    @property
    @abstractmethod
    def control(self) -> Path:
        """The folder with the files that let ranks fail."""

    @property
    @abstractmethod
    def checkpoints(self) -> Path:
        """The folder with the steps of each rank."""

    @property
    @abstractmethod
    def journal(self) -> Path:
        """The journal of the run."""

    @property
    @abstractmethod
    def kinds(self) -> Mapping[str, Callable[[], str]]:
        """Failures: each hits a random part of the run, and returns which."""

    @abstractmethod
    def look(self) -> None:
        """Raise AssertionError if the run cannot go on; called while something is awaited."""

    @abstractmethod
    def check_end(self) -> None:
        """Check the client's copy, and that nothing is left, when the run is over."""

    def steps(self, rank: int) -> int:
        """Return how many steps the rank has made."""
        file = self.checkpoints / f"steps-{rank}"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def events(self) -> list[dict[str, Any]]:
        """Return the events of the journal but output."""
        return [event for event in self.journal_lines() if event["kind"] != "output"]

    def journal_lines(self) -> list[dict[str, Any]]:
        """Return all whole lines of the journal."""
        with suppress(FileNotFoundError):
            text = self.journal.read_text()
            return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return []

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {LIMIT_S:.0f} s"
            self.look()
            time.sleep(0.1)

    def wait_for_progress(self) -> None:
        """Wait until every rank has made a step from now on."""
        before = [self.steps(rank) for rank in range(self.ranks)]

        def progress() -> bool:
            return all(self.steps(rank) > before[rank] for rank in range(self.ranks))

        self.wait_for(progress, "progress")

    def hit(self) -> None:
        """Let one failure of random kind hit the run."""
        kind = self.chance.choice(sorted(self.kinds))
        self.hits.append(kind)
        self.hits[-1] = f"{kind} ({self.kinds[kind]()})"
        print(f"{time.strftime('%H:%M:%S')} {self.hits[-1]}", flush=True)

    def fail(self, command: str) -> str:
        """Let a random rank execute the command before its next step."""
        rank = self.chance.randrange(self.ranks)
        (self.control / f"fail-{rank}").write_text(command)
        return f"rank {rank}: {command}"

    def exit_code(self) -> str:
        """Let a random rank exit."""
        return self.fail(f"exit {self.chance.choice([1, 3, 137, 139])}")

    def silence(self) -> str:
        """Let all ranks hang until gpuctl has noticed it."""
        before = self.count("output_stopped")
        (self.control / "silent").touch()
        self.wait_for(lambda: self.count("output_stopped") > before, "the silence to be noticed")
        (self.control / "silent").unlink()
        return "all ranks"

    def count(self, kind: str) -> int:
        """Return how many events of the kind the journal has."""
        return sum(event["kind"] == kind for event in self.events())

    def end(self) -> dict[str, Any]:
        """Let the job end; check every step and what is left; return the last event."""
        self.wait_for_progress()
        (self.control / "finish").touch()
        self.wait_for(lambda: self.events()[-1]["kind"] == "run_finished", "the end")
        self.check_end()
        for rank in range(self.ranks):
            made = (self.checkpoints / f"steps-{rank}").read_text().split()
            assert made == [str(step) for step in range(1, len(made) + 1)], (rank, made)
        return self.events()[-1]

    def rage(self, failures: int) -> None:
        """Let so many failures hit the run; AssertionError unless every step is there.

        Half of them come when all ranks work again, the others at any moment.
        """
        self.wait_for_progress()
        for _ in range(failures):
            if self.chance.random() < 0.5:
                self.wait_for_progress()
            else:
                time.sleep(2 * self.chance.random())
            self.hit()
        last = self.end()
        assert (last["status"], last["exit_code"]) == ("done", 0), last
        assert self.count("attempt_started") <= failures, "an attempt failed without a cause"
