"""A run on the terminal: the ranks' output live, tables of results at the end."""

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cli.terminal import elapsed

if TYPE_CHECKING:
    from pathlib import Path

    from cli.output import Output as Out
    from engine.events import CaseStarted, Event, NetworkSeen, NodeInterrupted, Output, RankStarted
    from engine.launch_plan import LaunchPlan
    from engine.result import RunResult

_COLORS = (36, 33, 32, 35, 34, 31)  # of the prefixes, by rank


def prefix(rank: int, width: int, colored: bool) -> str:
    """Return the prefix of each line of a rank's output: `[0] `."""
    text = f"[{rank:>{width}}] "
    return f"\033[{_COLORS[rank % len(_COLORS)]}m{text}\033[0m" if colored else text


class RunView:
    """Prints the events of a run; with `--json`, each is a JSON line on stderr."""

    def __init__(self, plan: "LaunchPlan", out: "Out") -> None:
        from engine.lines import WholeLines
        from engine.nccl_tests import TableParser

        self._plan = plan
        self._out = out
        self._width = len(str(len(plan.nodes) - 1))
        self._colored = out.has_color
        self._tables = TableParser()
        self._lines = WholeLines()
        self._ranks: dict[int, int] = {}
        self._proofs: dict[str, list[str]] = {}

    def event(self, event: "Event") -> None:
        """Print the event."""
        self._tables.feed(event)
        if self._out.as_json:
            if not self._out.is_quiet:
                self._out.record(event.model_dump_json(), sys.stderr)
        elif event.kind == "output":
            self._show(self._lines.feed(event))
        elif event.kind == "rank_started":
            self._rank_started(event)
        elif event.kind == "network_seen":
            self._network_seen(event)
        elif event.kind in ("output_judged", "gate_judged"):
            level = "" if event.level == "proof" else f"{event.level}: "
            self._out.say(f"-- {level}{event.text}")
        elif event.kind in ("evidence", "table_written"):
            pass  # `end` prints the evidence's folder and the table
        elif event.kind == "node_interrupted":
            self._out.say(f"-- {interruption(event, self._name(event.rank))}")
        else:
            if event.kind == "run_finished":
                self._show(self._lines.rest())
                self._print_proofs()
            self._out.note(f"-- {event_text(event)}")

    def _show(self, lines: "Sequence[Output]") -> None:
        from engine.agent.tables import CASE

        for line in lines:
            if CASE.match(line.text):
                continue  # the event case_started says more
            self._out.say(prefix(line.rank, self._width, self._colored) + line.text)

    def end(self, result: "RunResult", evidence: "Path | None") -> None:
        """Show the table, the verdict, and where the evidence of lost nodes is, if there is any.

        With `--json` it prints nothing, see `end_json`.
        """
        from cli.tables import table_lines

        if self._out.as_json:
            return
        for table in self._tables.tables:
            lines = table_lines(table, self._name(table.facts.rank), self._out)
            self._out.say("\n" + "\n".join(lines))
        self._out.say("")
        self._out.say("\n".join(verdict(result)))
        if evidence is not None:
            self._out.say(f"Evidence: what was seen of the lost node is in {evidence}")

    def _name(self, rank: int) -> str:
        return self._plan.nodes[rank].name

    def _rank_started(self, event: "RankStarted") -> None:
        """Print one line when all ranks of a launcher run; nccl-tests has one launcher per test."""
        from nodes.names import fold

        self._ranks[event.process] = event.rank
        if len(self._ranks) == event.size:
            names = fold(self._name(rank) for rank in self._ranks.values())
            count = f"all {event.size} ranks" if event.size > 1 else "the only rank"
            self._out.note(f"-- {count} started, on {names}")
            self._ranks.clear()

    def _network_seen(self, event: "NetworkSeen") -> None:
        """Print errors and warnings at once, and a proof when every node has it."""
        if event.level != "proof":
            self._out.say(f"-- network {event.level}: {event.text}")
            return
        name = self._name(event.rank)
        text = event.text.removeprefix(name)
        self._proofs.setdefault(text, []).append(name)
        if len(self._proofs[text]) == len(self._plan.nodes):
            self._print_proofs(text)

    def _print_proofs(self, *texts: str) -> None:
        from nodes.names import fold

        for text in texts or tuple(self._proofs):
            self._out.note(f"-- network: {fold(self._proofs.pop(text))}{text}")

    def end_json(
        self,
        result: "RunResult",
        cost_usd: float | None,
        evidence: "Path | None",
        outputs: "Path | None" = None,
    ) -> None:
        """Print the result as one JSON document on stdout.

        It has the tables, the cost of a removed cluster, and the folders with evidence of lost
        nodes and with outputs, if there are any.
        """
        value = result.model_dump(mode="json")
        value["tables"] = [table.model_dump(mode="json") for table in self._tables.tables]
        value["cost_usd"] = cost_usd
        value["evidence"] = evidence
        value["outputs"] = outputs
        self._out.show(value, ())


def verdict(result: "RunResult") -> list[str]:
    """Return how the run ended; of a failure also the first failed rank and its last lines."""
    took = f"{(result.ended - result.started).total_seconds():.1f}s"
    head = f"Run {result.run_id}: {result.status} in {took}, exit code {result.exit_code}"
    warnings = [f"Warning: {text}" for text in result.warnings]
    if result.status == "done":
        return [*warnings, head]
    lines = [*warnings, f"{head}: {result.reason}"]
    if result.last_lines:
        lines.append(f"Last lines of rank {result.first_failed_rank}:")
        lines += [f"  {line}" for line in result.last_lines]
    return lines


def progress(event: "CaseStarted") -> str:
    """Return the case that starts, and about how long the rest takes."""
    left = "" if event.left_s is None else f", about {_about(event.left_s)} left"
    return f"{event.number} of {event.of}, {event.title}{left}"


def _about(seconds: float) -> str:
    """Return a time in the largest unit of which there are two or more: `4 min`."""
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{round(seconds / 3600)} h"


def interruption(event: "NodeInterrupted", name: str) -> str:
    """Return AWS's notice as one line: the node, the action, its time, and its effect."""
    try:
        end = datetime.fromisoformat(event.at)
    except ValueError:
        when = event.at
    else:
        left = max(0.0, end.timestamp() - event.time)
        when = f"{end:%H:%M:%S} UTC, in {elapsed(left)}"
    return (
        f"rank {event.rank}: AWS takes {name}'s spot instance back: {event.action} at {when};"
        " the run fails then, unless it ends before"
    )


def event_text(event: "Event") -> str:
    """Return the event in words."""
    match event.kind:
        case "run_started":
            text = f"run {event.run_id} on {len(event.nodes)} nodes, startup {event.startup_order}"
        case "node_exited":
            text = f"rank {event.rank} exited with code {event.exit_code}"
        case "node_unreachable":
            text = f"rank {event.rank} cannot be reached: {event.reason}"
        case "node_answers_again":
            text = f"rank {event.rank} answers again, after a silence of {event.silence_s:.0f} s"
        case "disk_full":
            text = f"rank {event.rank}: {event.text}; the job goes on"
        case "node_stopped" | "node_lost":
            what = event.kind.removeprefix("node_")
            text = f"rank {event.rank} {what}: {event.reason}".removesuffix(": ")
        case "node_started" | "node_ready":
            text = f"rank {event.rank} {event.kind.removeprefix('node_')}"
        case "case_started":
            text = progress(event)
        case "run_finished":
            text = f"run {event.status}: {event.reason}".removesuffix(": ")
        case _:
            text = event.kind.replace("_", " ")
    return text
