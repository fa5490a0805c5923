"""The faults that the lab injects, with AWS's codes and texts: `gpuctl lab fault`.

The faults are in a JSON file in the lab's runtime folder, which maps each fault's name to its
arguments: `{"no-capacity": ["us-east-1a"], "throttle": ["3"]}`. Each request checks the file.
Without the file there is no fault. Texts are AWS's where they are public (see lab.api.errors).
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from config.catalogue.aws_codes import aws_code
from config.catalogue.instance_types import BASTION_TYPE
from lab.api.errors import Refusal, ServerFault
from lab.fault_kinds import FAULTS
from lab.fault_table import read


@dataclass(frozen=True)
class Notice:
    """An interruption notice: AWS reclaims these spot instances at the time `at`."""

    instances: tuple[str, ...]
    at: datetime


@dataclass(frozen=True)
class FaultyReservation:
    """A reservation or capacity block of the user with one defect: `kind`.

    Without the defect it would serve `count` instances of the type in the zone. `since` is the
    time at which the fault was set.
    """

    id: str
    kind: str
    instance_type: str
    count: int
    zone: str
    since: datetime


class Faults:
    """The faults of one lab, which every part that can inject one queries."""

    def __init__(self, table: Path | None = None) -> None:
        self._table = table
        self._counted_for: dict[str, tuple[str, ...]] = {}
        self._calls: Counter[str] = Counter()

    def arguments(self, name: str) -> tuple[str, ...] | None:
        """Return the fault's arguments; None if the fault is not set."""
        return self._now().get(name)

    def number(self, name: str) -> int | None:
        """Return the fault's number; None if the fault is not set."""
        given = self.arguments(name)
        return None if given is None else int(given[0])

    def reservations(self) -> tuple[FaultyReservation, ...]:
        """Return the reservations that the faults `reservation` and `block` describe."""
        reservations = []
        for name in ("reservation", "block"):
            if given := self.arguments(name):
                kind, instance_type, count, zone, made, since = given
                when = datetime.fromisoformat(since)
                reservations.append(
                    FaultyReservation(made, kind, instance_type, int(count), zone, when)
                )
        return tuple(reservations)

    def credentials_end(self) -> datetime | None:
        """Return when the credentials of clients expire; None if no fault says so."""
        given = self.arguments("expired-token")
        if given is None:
            return None
        seconds, since = given
        return datetime.fromisoformat(since) + timedelta(seconds=int(seconds))

    def notice(self) -> Notice | None:
        """Return the interruption notice that is set; None if there is none."""
        given = self.arguments("spot-interruption")
        if given is None:
            return None
        *instances, seconds, since = given
        at = datetime.fromisoformat(since) + timedelta(seconds=int(seconds))
        return Notice(tuple(instances), at)

    def _now(self) -> dict[str, tuple[str, ...]]:
        if self._table is None:
            return {}
        try:
            return read(self._table)
        except (ValueError, AttributeError, TypeError) as error:
            raise ServerFault("InternalError", f"{self._table} has no faults: {error}") from None

    def on_call(self) -> None:
        """Count one call to EC2; raise the error of a fault that applies to this call."""
        now = self._now()
        for name in ("throttle", "api-error"):
            if now.get(name) != self._counted_for.get(name):
                self._calls[name] = 0
        self._counted_for = now
        if throttle := now.get("throttle"):
            self._calls["throttle"] += 1
            if self._calls["throttle"] % int(throttle[0]) == 0:
                raise Throttled("RequestLimitExceeded", "Request limit exceeded.")
        if failing := now.get("api-error"):
            self._calls["api-error"] += 1
            if self._calls["api-error"] == int(failing[0]):
                code, *_ = (*failing[1:], FAULTS["api-error"].code)
                raise failure(code)

    def room(self, zone: str, instance_type: str) -> int | None:
        """Return the zone's room for the type as a fault limits it; None if no fault does."""
        if instance_type == BASTION_TYPE:
            return None
        if zone in (self.arguments("no-capacity") or ()):
            return 0
        return self.number("capacity")

    def withheld(self) -> set[tuple[str, str]]:
        """Return zone and type of each offering that a fault removes."""
        kind, *zones = self.arguments("not-offered") or ("",)
        return {(zone, kind) for zone in zones}


def failure(code: str) -> Refusal:
    """Return AWS's error of this code, with the HTTP status that makes clients retry or not."""
    known = aws_code(code)
    kind = ServerFault if known and known.repeat == "same" else Refusal
    text = "An internal error has occurred" if known is None else known.meaning
    return kind(code, "An internal error has occurred" if code == "InternalError" else text)


class Throttled(Refusal):
    """An error for too many requests: HTTP 503, so that clients retry as they do on AWS."""

    status = 503
