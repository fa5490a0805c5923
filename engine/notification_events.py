"""The events of a run's notifications; engine/events.py has the rest."""

from typing import Literal

from config.bounds import Time, Whole
from config.models import Value


class LeaseEnding(Value):
    """The cluster's lifetime ends soon, `at` this time: its nodes power off then."""

    kind: Literal["lease_ending"] = "lease_ending"
    time: Time
    at: Time


class Notified(Value):
    """A notification was sent, or given up after so many tries; then `error` says why.

    `number` counts the run's notices, `target` is the place in the run file's `notify`.
    """

    kind: Literal["notified"] = "notified"
    time: Time
    number: Whole
    target: Whole
    event: str
    tries: Whole
    error: str = ""

    @property
    def text(self) -> str:
        """The warning about a notification that was not sent."""
        tries = "1 try" if self.tries == 1 else f"{self.tries} tries"
        return (
            f"notify[{self.target}] was not notified of '{self.event}' after {tries}: {self.error}"
        )


class NotificationsEnded(Value):
    """After the end of the run: no notification is on its way any more."""

    kind: Literal["notifications_ended"] = "notifications_ended"
    time: Time
