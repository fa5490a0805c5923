"""What every region of the lab shares: machines, capacity, public addresses, one lock."""

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
    """The addresses that the lab hands out as public ones, from the first of `within` upwards.

    They are of 198.18.0.0/15, which is reserved for benchmarks of network devices (RFC 2544) and
    is never routed on the Internet. A returned address comes round again only after all others, so
    that nothing that remembers the old holder meets the new one.
    """

    def __init__(self, within: ipaddress.IPv4Network) -> None:
        self._range = within
        self._taken: set[str] = set()
        self._order = self._round()

    def _round(self) -> Iterator[str]:
        while True:
            yield from map(str, self._range.hosts())

    def take(self, wanted: str | None = None) -> str:
        """An address that nobody else has, `wanted` if given; AddressLimitExceeded if none."""
        if wanted and (wanted in self._taken or ipaddress.IPv4Address(wanted) not in self._range):
            raise Refusal("InvalidAddress.NotFound", f"Address '{wanted}' not found.")
        if len(self._taken) >= self._range.num_addresses - 2:
            raise Refusal(
                "AddressLimitExceeded", "The maximum number of addresses has been reached."
            )
        address = wanted or next(a for a in self._order if a not in self._taken)
        self._taken.add(address)
        return address

    def give_back(self, address: str) -> None:
        """The address is free again."""
        self._taken.discard(address)


class Capacity:
    """How many instances of a type a zone has room for: unlimited, unless the table says so.

    The table is a JSON file, `{"us-east-1a": {"p4d.24xlarge": 1}}`, read at each launch, so that
    a rehearsal of scarcity is one file away. No file, no limit.
    """

    def __init__(self, table: Path | None, faults: Faults | None = None) -> None:
        self._table = table
        self._faults = faults or Faults()

    def limit(self, zone: str, instance_type: str) -> int | None:
        """The zone's room for the type, by a fault or the table; None where it is not limited."""
        told = self._faults.room(zone, instance_type)
        if told is not None:
            return told
        if self._table is None or not self._table.exists():
            return None
        try:
            room = json.loads(self._table.read_text()).get(zone, {}).get(instance_type)
            return None if room is None else int(room)
        except (ValueError, AttributeError, TypeError) as error:
            raise ServerFault(
                "InternalError", f"{self._table} is not a capacity table: {error}"
            ) from None


@dataclass(frozen=True)
class Lab:
    """What the regions of one lab share. `lock` is held by whoever reads or changes state."""

    machines: Machines = field(default_factory=NoMachines)
    capacity: Capacity = field(default_factory=lambda: Capacity(None))
    faults: Faults = field(default_factory=Faults)
    addresses: PublicAddresses = field(
        default_factory=lambda: PublicAddresses(Slot(0).public_range)
    )
    lock: RLock = field(default_factory=RLock)
