"""The share that each lab has of what this machine has once: addresses, route numbers, links.

The default lab has slot 0. Other labs take the lowest free slot when their network comes up and
return it when it is gone, both under one lock.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from config.errors import LabError
from config.file_locks import wait_for_lock
from lab.places import ROOT, Places, everywhere, make_private, open_private

EVERY_LAB = IPv4Network("198.18.0.0/15")
"""RFC 2544: set aside for tests, routed nowhere."""

_LOCK = "run/gpuctl-labs.lock"
_FIRST_PROTOCOL = 218
_NAMED = 16
"""How many labs fit in addition to the default one."""


@dataclass(unsafe_hash=True)
class Slot:
    """One lab's share. The default lab has a /16 of 198.18.0.0/15, every other a /20."""

    number: int

    def __post_init__(self) -> None:
        self.range = IPv4Network("198.18.0.0/16")
        """All addresses of the lab that the host routes to it."""
        if self.number:
            others = IPv4Network("198.19.0.0/16").subnets(new_prefix=20)
            self.range = list(others)[self.number - 1]
        self.public_range = next(self.range.subnets())
        """Public addresses that the API may give to machines."""
        link = self.range.broadcast_address - 255
        self.host_address = str(link + 1)
        """The host's end of the link into the lab."""
        self.inside_address = str(link + 2)
        """The lab's end of that link."""
        self.host_link = f"gpuctl-lab{self.number}"
        """The name of that link on the host."""
        self.route_protocol = str(_FIRST_PROTOCOL + self.number)
        """The number on every route of the lab: a crashed lab's are found by it."""
        self.metric = str(self.number)
        """The metric that makes routes of two labs to the same range differ for the kernel."""


PROTOCOLS = tuple(Slot(number).route_protocol for number in range(_NAMED + 1))
"""The route numbers of all labs."""


@contextmanager
def exclusively(root: Path = ROOT) -> Iterator[None]:
    """Be the only process that changes what labs share."""
    with open_private(root / _LOCK) as lock:
        wait_for_lock(lock)
        yield


def held(places: Places) -> Slot | None:
    """Return the lab's slot; None where a named lab has none."""
    if places.is_default:
        return Slot(0)
    try:
        return Slot(int(_file(places).read_text()))
    except (FileNotFoundError, ValueError):
        return None


def take(places: Places) -> Slot:
    """Return the lab's slot, a free one if it had none; LabError when all are taken."""
    with exclusively(places.root):
        if slot := held(places):
            return slot
        taken = {slot.number for lab in everywhere(places.root) if (slot := held(lab))}
        free = [number for number in range(1, _NAMED + 1) if number not in taken]
        if not free:
            raise LabError(
                f"{_NAMED} labs besides the default one are on this machine, the most it takes",
                "see `gpuctl lab status` and stop one: `gpuctl --lab-name NAME lab stop`",
            )
        make_private(places.runtime, places.root)
        partial = _file(places).with_suffix(f".{os.getpid()}")
        partial.write_text(str(free[0]))
        partial.replace(_file(places))
        return Slot(free[0])


def release(places: Places) -> None:
    """Return the lab's slot; its network must be gone."""
    with exclusively(places.root):
        _file(places).unlink(missing_ok=True)


def _file(places: Places) -> Path:
    return places.runtime / "slot"
