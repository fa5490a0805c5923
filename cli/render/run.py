"""A run on the terminal: the nodes' output live, tables of results at the end."""

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cli.render.lines import LineView, dropped_lines, node_name
from cli.render.tables import table_lines
from cli.render.top import idle_text
from config.command_text import command_text
from config.folded_names import fold
from config.quantities import counted, elapsed, money
from engine.contract.event import Event, NodeEvent
from engine.contract.head_events import (
    AttemptEnded,
    AttemptStarted,
    BudgetNearing,
    CaseStarted,
    Evidence,
    FollowedFailure,
    GateJudged,
    GpusIdle,
    HangJudged,
    HeadUnreachable,
    LeaseEnding,
    NetworkSeen,
    NodeAnswersAgain,
    NodeGone,
    NodeLost,
    NodesLeftOut,
    NodeUnreachable,
    NotificationsEnded,
    Notified,
    OutputDropped,
    OutputJudged,
    RunFinished,
    RunQueued,
    RunStarted,
    WaitingForNodes,
)
from engine.contract.table import CASE_MARK
from engine.contract.worker_events import (
    ClockSet,
    DiskFull,
    NodeExamined,
    NodeExited,
    NodeInterrupted,
    NodePrepared,
    NodeReady,
    NodeStarted,
    NodeStopped,
    NoticeGiven,
    Output,
    RankStarted,
    TableWritten,
)
from operations import run_client

if TYPE_CHECKING:
    from pathlib import Path

    from cli.output import Output as Out
    from operations.run_client import Line
    from operations.runs import FirstEvent, Inventory, KnownRun, RunResult


_AFTER_LINES = (CaseStarted, HangJudged, OutputJudged, GateJudged, NetworkSeen, NodeLost)
"""Events that are about lines before them: no line waits for equal ones then."""


class RunView:
    """Prints the events of a run; with `--json`, each is a JSON line on stderr.

    With the cluster's inventory it prints what idle GPUs cost. `folds` prints equal lines of
    several ranks once.
    """

    def __init__(
        self,
        plan: "KnownRun",
        out: "Out",
        inventory: "Inventory | None" = None,
        folds: bool = False,
    ) -> None:
        self._inventory = inventory
        self._names = [node.name for node in plan.nodes]
        self._out = out
        self._view = LineView(out, self._names, folds)
        self._tables = run_client.TableCollector()
        self._lines = run_client.WholeLines()
        self._ranks: dict[int, int] = {}
        self._proofs: dict[str, list[str]] = {}
        self._is_silent = False  # the head does not answer, and the user knows that

    def event(self, event: Event) -> None:
        """Print the event."""
        self._tables.feed(event)
        if event.is_internal:
            return
        was_silent, self._is_silent = self._is_silent, isinstance(event, HeadUnreachable)
        if was_silent and self._is_silent:
            return
        if self._out.as_json:
            if not self._out.is_quiet:
                self._out.record(run_client.event_json(event), sys.stderr)
        elif isinstance(event, Output):
            self._output(event)
        elif isinstance(event, OutputDropped):
            self._show((*self._lines.rest(), *dropped_lines(event)))
        else:
            if isinstance(event, _AFTER_LINES):
                self._view.rest()
            self._view.clear()
            self._other(event)

    def _output(self, event: Output) -> None:
        """Print output: many whole lines at once if they need no change."""
        is_plain = self._lines.is_whole(event) and CASE_MARK not in event.text
        if not (is_plain and self._view.show_text(event.rank, event.text)):
            self._show(self._lines.feed(event))
            self._view.show_state(event.rank, self._lines.state(event.rank, event.stream))

    def _other(self, event: Event) -> None:
        """Print an event that is no output."""
        if isinstance(event, RankStarted):
            self._rank_started(event)
        elif isinstance(event, NetworkSeen):
            self._network_seen(event)
        elif isinstance(event, (OutputJudged, GateJudged, ClockSet, HangJudged)):
            level = "" if event.level == "proof" else f"{event.level}: "
            self._out.say(f"-- {level}{event.text}")
        elif isinstance(event, (Evidence, TableWritten, NodeExamined)):
            pass  # `end` prints the evidence's folder, the table, and the reason of a failure
        elif isinstance(event, (Notified, NotificationsEnded)):
            if isinstance(event, Notified) and event.error:
                self._out.say(f"-- warning: {event.text}")
        elif isinstance(event, GpusIdle):
            self._out.say(f"-- warning: {self._idle_text(event)}")
        elif isinstance(event, (NodeInterrupted, NoticeGiven)):
            self._out.say(f"-- {self._notice(event)}")
        else:
            if isinstance(event, (RunFinished, AttemptEnded)):
                self._end_attempt(event)
            self._use_nodes(event)
            self._out.note(f"-- {event_text(event, self._names)}")

    def _notice(self, event: NodeInterrupted | NoticeGiven) -> str:
        if isinstance(event, NoticeGiven):
            return f"notice to the job: {event.text}"
        return interruption(event, self._name(event.rank))

    def skip(self, event: Event) -> None:
        """Take an event into account that is not to be printed: `end` prints its tables."""
        self._tables.feed(event)
        self._use_nodes(event)

    def _use_nodes(self, event: Event) -> None:
        """Use the attempt's names of ranks: it may have other nodes than the one before."""
        if isinstance(event, AttemptStarted) and event.nodes:
            self._names = [node.name for node in event.nodes]
            self._view.use_names(self._names)

    def _end_attempt(self, event: Event) -> None:
        """Print what is left of the attempt's output; after the last one, the proofs."""
        self._show(self._lines.rest())
        self._view.rest()
        self._ranks.clear()
        if isinstance(event, RunFinished):
            self._print_proofs()

    def _show(self, lines: "Sequence[Line]") -> None:
        # The event case_started says more.
        self._view.show([line for line in lines if not line.text.startswith(CASE_MARK)])

    def end(self, result: "RunResult", evidence: "Path | None") -> None:
        """Show the table, the verdict, and where the evidence about nodes is, if there is any.

        With `--json` it prints nothing, see `end_json`.
        """
        if self._out.as_json:
            return
        for table in self._tables.tables:
            lines = table_lines(table, self._name(table.facts.rank), self._out)
            self._out.say("\n" + "\n".join(lines))
        self._out.say("")
        self._out.say("\n".join(verdict(result)))
        if evidence is not None:
            self._out.say(f"Evidence: what was seen of the node is in {evidence}")

    def next_steps(self, result: "RunResult", *, is_removed: bool) -> None:
        """Print the run's cost, what goes on costing, and the next commands; not with `--json`.

        The teardown of a removed cluster has printed its cost.
        """
        inventory, run_id = self._inventory, result.run_id
        if not is_removed and (usd := self._cost(result)) is not None:
            self._out.note(f"The run has cost about {money(usd)} at list price.")
        if inventory is not None and not is_removed:
            price = run_client.nodes_usd_h(inventory)
            rate = "" if price is None else f", and its nodes cost {money(price)} per hour"
            self._out.note(
                f"Cluster {inventory.cluster} goes on{rate}:"
                f" {command_text('gpuctl down {}', inventory.cluster)}"
                " removes it"
            )
        self._out.note(
            f"Next: {command_text('gpuctl logs {}', run_id)},"
            f" {command_text('gpuctl report {}', run_id)}"
        )

    def _cost(self, result: "RunResult") -> float | None:
        """Return the dollars for the run's nodes from its start to its end; None if not known."""
        price = None if self._inventory is None else run_client.node_usd_h(self._inventory)
        hours = (result.ended - result.started).total_seconds() / 3600
        return None if price is None else price * len(self._names) * hours

    def _name(self, rank: int) -> str:
        return node_name(self._names, rank)

    def _idle_text(self, event: GpusIdle) -> str:
        idle = run_client.idle_cost_of(event, self._name(event.rank), self._inventory)
        return "" if idle is None else idle_text(idle)

    def _rank_started(self, event: RankStarted) -> None:
        """Print one line when all ranks of a launcher run; nccl-tests has one launcher per test."""
        self._ranks[event.process] = event.rank
        if len(self._ranks) == event.size:
            names = fold(self._name(rank) for rank in self._ranks.values())
            count = f"all {event.size} ranks" if event.size > 1 else "the only rank"
            self._out.note(f"-- {count} started, on {names}")
            self._ranks.clear()

    def _network_seen(self, event: NetworkSeen) -> None:
        """Print errors and warnings at once, and a proof when every node has it."""
        if event.level != "proof":
            self._out.say(f"-- network {event.level}: {event.text}")
            return
        name = self._name(event.rank)
        text = event.text.removeprefix(name)
        self._proofs.setdefault(text, []).append(name)
        if len(self._proofs[text]) == len(self._names):
            self._print_proofs(text)

    def _print_proofs(self, *texts: str) -> None:
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

        It has the tables, the cost of a removed cluster, that of the run's nodes, and the folders
        with evidence about nodes and with outputs, if there are any.
        """
        value = result.model_dump(mode="json")
        value["tables"] = [table.model_dump(mode="json") for table in self._tables.tables]
        value["cost_usd"] = cost_usd
        value["run_usd"] = self._cost(result)
        value["evidence"] = evidence
        value["outputs"] = outputs
        self._out.show(value, ())


def verdict(result: "RunResult") -> list[str]:
    """Return how the run ended; of a failure also the last lines of the node that failed first."""
    took = f"{(result.ended - result.started).total_seconds():.1f}s"
    tries = f" and {result.attempts} attempts" if result.attempts > 1 else ""
    head = f"Run {result.run_id}: {result.status} in {took}{tries}, exit code {result.exit_code}"
    warnings = [f"Warning: {text}" for text in result.warnings]
    if result.status == "done":
        return [*warnings, head]
    lines = [*warnings, f"{head}: {result.reason}"]
    lines += followed_lines(result.followed)
    if result.last_lines:
        lines.append(f"Last lines of {result.first_failed_node or 'the node that failed'}:")
        lines += [f"  {line}" for line in result.last_lines]
    return lines


def followed_lines(followed: Sequence[FollowedFailure]) -> list[str]:
    """Return a line for each failure after the first."""
    return [f"Then {fold(failure.nodes)}: {failure.text}" for failure in followed]


def progress(event: CaseStarted) -> str:
    """Return the case that starts, and about how long the rest takes."""
    left = "" if event.left_s is None else f", about {_about(event.left_s)} left"
    return f"{event.number} of {event.of}, {event.title}{left}"


def _about(seconds: float) -> str:
    """Return a time in the largest unit of which there are two or more: `4 min`."""
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{round(seconds / 3600)} h"


def interruption(event: NodeInterrupted, name: str) -> str:
    """Return AWS's notice as one line: the node, the action, its time, and its effect."""
    try:
        end = datetime.fromisoformat(event.at)
    except ValueError:
        when = event.at
    else:
        left = max(0.0, end.timestamp() - event.time)
        when = f"{end:%H:%M:%S} UTC, in {elapsed(left)}"
    return (
        f"AWS takes {name}'s spot instance back: {event.action} at {when};"
        " the run fails then, unless it ends before"
    )


def _beginning(event: "FirstEvent") -> str:
    """Return where the run starts, or for which runs it waits."""
    if isinstance(event, RunStarted):
        return f"run {event.run_id} on {len(event.nodes)} nodes, startup {event.startup_order}"
    behind = f", behind {', '.join(event.ahead)}" if event.ahead else ""
    return f"run {event.run_id} waits at place {event.place} of the queue{behind}"


def event_text(event: Event, names: Sequence[str]) -> str:
    """Return the event in words; `names` are those of the nodes, by their numbers in the run."""
    name = node_name(names, event.rank) if isinstance(event, NodeEvent) else ""
    match event:
        case RunQueued() | RunStarted():
            text = _beginning(event)
        case NodeExited():
            text = f"{name} exited with code {event.exit_code}"
        case NodeUnreachable():
            text = f"{name} cannot be reached: {event.reason}"
        case NodeAnswersAgain():
            text = f"{name} answers again, after a silence of {event.silence_s:.0f} s"
        case DiskFull():
            text = f"{name}: {event.text}; the job goes on"
        case NodeStopped() | NodeLost() | NodeGone():
            what = event.kind.removeprefix("node_")
            text = f"{name} {what}: {event.reason}".removesuffix(": ")
        case NodePrepared() | NodeStarted() | NodeReady():
            text = f"{name} {event.kind.removeprefix('node_')}"
        case CaseStarted():
            text = progress(event)
        case RunFinished():
            text = f"run {event.status}: {event.reason}".removesuffix(": ")
        case _:
            text = _attempt_text(event)
    return text


def _attempt_text(event: Event) -> str:
    """Return an event of the attempts of a run in words."""
    match event:
        case AttemptEnded():
            again = f"; the next starts in {elapsed(event.pause_s)}" if event.pause_s else ""
            return f"attempt {event.number} of {event.attempts} failed: {event.reason}{again}"
        case WaitingForNodes():
            names = ", ".join(event.nodes)
            return f"the run waits for {names}, for {elapsed(event.seconds)} at most"
        case NodesLeftOut():
            left = counted(event.left, "node")
            return f"{fold(event.nodes)} did not come back: the run goes on with {left}"
        case AttemptStarted():
            where = f" on {fold(node.name for node in event.nodes)}" if event.nodes else ""
            return f"attempt {event.number} starts{where}"
        case _:
            return _machine_text(event)


def _machine_text(event: Event) -> str:
    """Return an event of the head or of the cluster's lifetime in words."""
    match event:
        case HeadUnreachable():
            return f"the head has not answered for {elapsed(event.seconds)}: {event.reason}"
        case LeaseEnding():
            left = elapsed(event.at - event.time)
            return f"the cluster's lifetime ends in {left}; its nodes power off then"
        case BudgetNearing():
            spent, most = money(event.spent_usd), money(event.max_usd)
            return f"the cluster has cost about {spent} of budget.max_total ({most})"
        case _:
            return event.kind.replace("_", " ")
