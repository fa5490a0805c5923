"""The faults that the lab injects, with AWS's codes and texts: `gpuctl lab fault`.

The faults are in a JSON file in the lab's runtime folder, which maps each fault's name to its
arguments: `{"no-capacity": ["us-east-1a"], "throttle": ["3"]}`. Each request reads the file.
Without the file there is no fault. Texts are AWS's where they are public (see lab.api.errors).
"""

import json
import re
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from config.catalogue.aws_codes import aws_code
from config.catalogue.instance_types import BASTION_TYPE
from config.cluster.cluster_file import ZONE
from config.errors import InputError
from lab.api.errors import Refusal, ServerFault
from lab.fault_table import CLOUD_INIT, FABRIC_MANAGER, PROVIDER, ROOT_LOGIN, SLOW_NETWORK, read

_NUMBER = r"[0-9]{1,6}"
_TYPE = r"[a-z0-9-]+\.[a-z0-9-]+"
_INSTANCE = "i-[0-9a-f]{17}"
_RATE = "[1-9][0-9]{0,3}(kbit|mbit|gbit)"
_SOMEWHERE = rf" {_TYPE} [1-9][0-9]{{0,3}} {ZONE[1:-1]}"


@dataclass(frozen=True)
class FaultKind:
    """A kind of fault: the arguments that it takes, and the error code that AWS would send.

    `usage` shows the arguments to people; `form` is a regular expression for all arguments,
    joined with single spaces. `code` is empty for a fault that no error shows.
    """

    usage: str
    form: str
    code: str
    meaning: str


FAULTS: Mapping[str, FaultKind] = {
    "no-capacity": FaultKind(
        "ZONE…", rf"{ZONE[1:-1]}( {ZONE[1:-1]})*", "InsufficientInstanceCapacity",
        "these zones have no instance of any type but the bastion's",
    ),
    "capacity": FaultKind(
        "N", _NUMBER, "InsufficientInstanceCapacity",
        "every zone has N instances of a type, and no more",
    ),
    "vcpu-quota": FaultKind(
        "N", _NUMBER, "VcpuLimitExceeded",
        "the account may run N vCPUs of each group of families",
    ),
    "throttle": FaultKind(
        "K", "[1-9][0-9]{0,3}", "RequestLimitExceeded", "every K-th call to EC2 is throttled"
    ),
    "api-error": FaultKind(
        "K [CODE]", r"[1-9][0-9]{0,5}( [A-Za-z.]+)?", "InternalError",
        "the K-th call to EC2 from now on fails, once, with CODE",
    ),
    "not-offered": FaultKind(
        "TYPE ZONE…", rf"{_TYPE}( {ZONE[1:-1]})+", "Unsupported",
        "these zones do not offer the type",
    ),
    "no-free-address": FaultKind(
        "", "", "InsufficientFreeAddressesInSubnet", "no subnet has a free address"
    ),
    "elastic-ip-limit": FaultKind(
        "N", _NUMBER, "AddressLimitExceeded", "the account may have N Elastic IP addresses"
    ),
    "vpc-limit": FaultKind("N", _NUMBER, "VpcLimitExceeded", "the account may have N VPCs"),
    "image-architecture": FaultKind(
        "ARCHITECTURE", "x86_64|arm64", "InvalidParameterValue",
        "every image but the bastion's is for this architecture",
    ),
    "reservation": FaultKind(
        "KIND TYPE N ZONE", f"(wrong-zone|wrong-type|too-small|taken){_SOMEWHERE}",
        "ReservationCapacityExceeded",
        "you have a reservation for N of TYPE in ZONE, but KIND: wrong-zone, wrong-type, too-small,"
        " taken",
    ),
    "block": FaultKind(
        "KIND TYPE N ZONE", f"(not-started|last-half-hour){_SOMEWHERE}",
        "ReservationCapacityExceeded",
        "you have a capacity block for N of TYPE in ZONE, but KIND: not-started, last-half-hour",
    ),
    "claim-pending": FaultKind(
        "SECONDS", _NUMBER, "",
        "a new capacity reservation is pending for SECONDS, and active after that",
    ),
    "claim-failed": FaultKind(
        "ZONE…", rf"{ZONE[1:-1]}( {ZONE[1:-1]})*", "",
        "a new capacity reservation in these zones is pending for a second, and failed after that",
    ),
    "expired-token": FaultKind(
        "SECONDS", _NUMBER, "ExpiredToken",
        "credentials that were issued before SECONDS from now have expired then",
    ),
    "spot-interruption": FaultKind(
        "INSTANCE… [SECONDS]", rf"{_INSTANCE}( {_INSTANCE})*( {_NUMBER})?",
        "Server.SpotInstanceTermination",
        "AWS takes these spot instances (i-…, or demo-node1) back in SECONDS, by default 120",
    ),
    PROVIDER: FaultKind(
        "violates plan", "violates plan", "",
        "Pulumi's provider computes other inputs each time, so that no update is as planned",
    ),
    "console-late": FaultKind(
        "SECONDS", _NUMBER, "",
        "the console of an instance shows nothing within SECONDS of its launch",
    ),
    "vpc-endpoint": FaultKind(
        "by guardduty", "by guardduty", "",
        "GuardDuty puts an endpoint and a security group into the VPC of the next instance",
    ),
    SLOW_NETWORK: FaultKind(
        "NODE… RATE", rf"{_INSTANCE}( {_INSTANCE})* {_RATE}", "",
        "these machines (demo-node1, or i-…) send and receive at most RATE, such as 10mbit",
    ),
    CLOUD_INIT: FaultKind(
        "22.2.2", r"22\.2\.2", "",
        "machines launched from now on have a cloud-init as old as Amazon Linux 2023's, whose"
        " `status` knows no --format",
    ),
    ROOT_LOGIN: FaultKind(
        "off", "off", "", "sshd of machines launched from now on refuses root (PermitRootLogin no)"
    ),
    FABRIC_MANAGER: FaultKind(
        "late SECONDS", f"late {_NUMBER}", "",
        "on machines launched from now on NVIDIA's fabric manager fails until SECONDS after the"
        " boot",
    ),
}  # fmt: skip
"""Every fault by its name."""

NOTICE_S = 120
"""Seconds from a spot instance's notice to its end ("Spot Instance interruption notices",
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html,
2026-11-20)."""


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


def parse(name: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fault's arguments, checked and completed; InputError names the usage."""
    if name not in FAULTS:
        raise InputError(
            f"the lab has no fault '{name}'",
            f"it knows {', '.join(FAULTS)}: `gpuctl lab fault list`",
        )
    kind = FAULTS[name]
    given = " ".join(arguments)
    if not re.fullmatch(kind.form, given):
        raise InputError(
            f"fault {name} cannot be given '{given}'",
            f"write `{f'gpuctl lab fault set {name} {kind.usage}'.rstrip()}`: {kind.meaning}",
        )
    return (*arguments, *_certain(name, arguments))


def _certain(name: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the id and time to store with a fault, so that all requests see the same values."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if name in ("reservation", "block"):
        return (f"cr-{secrets.token_hex(9)[:17]}", now)
    if name == "expired-token":
        return (now,)
    if name == "spot-interruption":
        return (now,) if arguments[-1].isdigit() else (str(NOTICE_S), now)
    return ()


def write(table: Path, faults: Mapping[str, tuple[str, ...]]) -> None:
    """Replace the set of faults; it applies from the next request on."""
    temporary = table.with_suffix(".tmp")
    temporary.write_text(json.dumps(faults, indent=2) + "\n")
    temporary.replace(table)


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
        found = []
        for name in ("reservation", "block"):
            if given := self.arguments(name):
                kind, instance_type, count, zone, made, since = given
                when = datetime.fromisoformat(since)
                found.append(FaultyReservation(made, kind, instance_type, int(count), zone, when))
        return tuple(found)

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

    def withholds(self, zone: str, instance_type: str) -> bool:
        """Return whether a fault removes the type from the zone's offerings."""
        kind, *zones = self.arguments("not-offered") or ("",)
        return kind == instance_type and zone in zones


def failure(code: str) -> Refusal:
    """Return AWS's error of this code, with the HTTP status that makes clients retry or not."""
    known = aws_code(code)
    kind = ServerFault if known and known.repeat == "same" else Refusal
    text = "An internal error has occurred" if known is None else known.meaning
    return kind(code, "An internal error has occurred" if code == "InternalError" else text)


class Throttled(Refusal):
    """An error for too many requests: HTTP 503, so that clients retry as they do on AWS."""

    status = 503
