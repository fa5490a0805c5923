"""Pieces of output joined to the lines that the job printed.

A line that takes its time (a row of nccl-tests at 8 GiB) comes in pieces, so that a person sees
it grow; what reads lines needs it whole.
"""

from engine.events import Output


class WholeLines:
    """Joins pieces per rank and stream."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, str], Output] = {}

    def feed(self, event: Output) -> tuple[Output, ...]:
        """The line that `event` ends, or nothing; time and offset are those of its first piece."""
        place = (event.rank, event.stream)
        first = self._held.pop(place, None)
        if first is not None:
            event = first.model_copy(
                update={"text": first.text + event.text, "ends_line": event.ends_line}
            )
        if event.ends_line:
            return (event,)
        self._held[place] = event
        return ()

    def rest(self) -> tuple[Output, ...]:
        """What never got an end, each as a line; nothing is held afterwards."""
        rest = tuple(self._held.values())
        self._held.clear()
        return rest
