"""Tables of output that a test prints: read as on the head, and collected as in a client."""

from collections.abc import Iterable

from engine.agent.judge.output_reader import OutputReader
from engine.contract.event import Event
from engine.contract.head_events import AttemptStarted
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import Verdict
from engine.record.result import TableCollector
from tests.engine.bare_plans import bare_node, bare_plan

DONE = Verdict("done", 0, None, "the master is done")


class TablesOfOutput(TableCollector):
    """A collector of tables that gets output in place of what the head reads in it."""

    def __init__(self, plan: LaunchPlan | None = None) -> None:
        super().__init__()
        self._plan = plan or bare_plan([bare_node(0), bare_node(1)])
        self._reader = OutputReader(self._plan)

    def read(self, event: Event) -> tuple[int, ...]:
        """Return the places of the tables that the event's output adds to or changes."""
        if isinstance(event, AttemptStarted):
            self._reader = OutputReader(self._plan)
        return self._collect(self._reader.read(event))

    def end(self) -> tuple[int, ...]:
        """Return the places of the tables that the end of the output changes."""
        return self._collect(self._reader.end(DONE)[0])

    def _collect(self, events: Iterable[Event]) -> tuple[int, ...]:
        places = map(self.feed, events)
        return tuple(sorted({place for place in places if place is not None}))
