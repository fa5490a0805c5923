"""The parts that all regions of a lab share: machines, capacity, public addresses, one lock."""

import ipaddress
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

from lab.api.errors import Refusal, ServerFault
from lab.api.faults import Faults
from lab.api.machines import Machines, NoMachines
from lab.network.slots import Slot


class PublicAddresses:
    """The lab's public addresses, which it assigns in ascending order from `within`.

    They are in 198.18.0.0/15, which is reserved for benchmarks of network devices (RFC 2544) and
    is never routed on the Internet. A released address is assigned again only after all others, so
    that a client that remembers its old owner does not reach the new one.
    """

    def __init__(self, within: ipaddress.IPv4Network) -> None:
        self._range = within
        self._taken: set[str] = set()
        self._order = self._round()

    def _round(self) -> Iterator[str]:
        while True:
            yield from map(str, self._range.hosts())

    def take(self, requested: str | None = None) -> str:
        """Return a free address, `wanted` if given; AddressLimitExceeded if there is none."""
        if requested and (
            requested in self._taken or ipaddress.IPv4Address(requested) not in self._range
        ):
            raise Refusal("InvalidAddress.NotFound", f"Address '{requested}' not found.")
        if len(self._taken) >= self._range.num_addresses - 2:
            raise Refusal(
                "AddressLimitExceeded", "The maximum number of addresses has been reached."
            )
        address = requested or next(a for a in self._order if a not in self._taken)
        self._taken.add(address)
        return address

    def give_back(self, address: str) -> None:
        """Release the address."""
        self._taken.discard(address)


class CapacityTable:
    """The room for instances of a type in a zone: unlimited unless a table limits it.

    The table is a JSON file, `{"us-east-1a": {"p4d.24xlarge": 1}}`. Each launch reads it, so that
    a rehearsal can change the capacity of a running lab. Without the file there is no limit.
    """

    def __init__(self, table: Path | None, faults: Faults | None = None) -> None:
        self._table = table
        self._faults = faults or Faults()

    def limit(self, zone: str, instance_type: str) -> int | None:
        """Return the zone's room for the type from a fault or the table; None if unlimited."""
        fault = self._faults.room(zone, instance_type)
        if fault is not None:
            return fault
        if self._table is None:
            return None
        try:
            room = json.loads(self._table.read_text()).get(zone, {}).get(instance_type)
            return None if room is None else int(room)
        except FileNotFoundError:
            return None
        except (ValueError, AttributeError, TypeError) as error:
            raise ServerFault(
                "InternalError", f"{self._table} is not a capacity table: {error}"
            ) from None


PROFILE_DELAY_S = 1.0
"""How long EC2 refuses a new instance profile. On AWS it is about ten seconds, says
internal/service/ec2/ec2_instance.go of hashicorp/terraform-provider-aws (2026-11-23), whose
provider repeats such a launch for two minutes."""


@dataclass(frozen=True)
class Lab:
    """The parts that a lab's regions share. Hold `lock` while reading or changing state."""

    machines: Machines = field(default_factory=NoMachines)
    capacity: CapacityTable = field(default_factory=lambda: CapacityTable(None))
    faults: Faults = field(default_factory=Faults)
    addresses: PublicAddresses = field(
        default_factory=lambda: PublicAddresses(Slot(0).public_range)
    )
    profile_delay_s: float = PROFILE_DELAY_S
    lock: RLock = field(default_factory=RLock)
