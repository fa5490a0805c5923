"""The choice of points, a pure function of the seed: which command is killed, how and when.

A moment is a number of requests and not a time, so that a seed reproduces its point on any machine.
Requests of one step are sent side by side, so their order, and with it what exists, may vary.
"""

import random
from dataclasses import dataclass
from typing import Literal

Command = Literal["up", "run", "heal", "down"]
Victim = Literal["client", "engine", "provider", "all"]
Shape = Literal["bastion", "efa", "shared"]
Remedy = Literal["down", "gc"]

CALLS: dict[tuple[Command, Shape], int] = {
    ("up", "bastion"): 34,
    ("up", "efa"): 34,
    ("up", "shared"): 40,
    ("heal", "bastion"): 4,
    ("heal", "efa"): 4,
    ("heal", "shared"): 4,
    ("run", "bastion"): 21,
    ("run", "efa"): 21,
    ("run", "shared"): 24,
    ("down", "bastion"): 21,
    ("down", "efa"): 21,
    ("down", "shared"): 24,
}
"""How many requests that change something each command sends; a point that does not come fails."""


@dataclass(frozen=True)
class Point:
    """A command on a cluster of this shape, killed at the `call`-th request that changes something.

    With `is_done` the API has carried the request out, and nobody gets the answer. Without, the API
    has received it and carries it out when its sender is dead. `gc` is for a machine that is lost
    with its records: all is killed there.
    """

    seed: int
    command: Command
    shape: Shape
    victim: Victim
    call: int
    is_done: bool
    remedy: Remedy

    def __str__(self) -> str:
        moment = "after" if self.is_done else "during"
        return (
            f"seed {self.seed}: {self.command} of a {self.shape} cluster, kill -9 of {self.victim}"
            f" {moment} call {self.call}, then {self.remedy}"
        )


def point(seed: int) -> Point:
    """Return the point of the seed."""
    chance = random.Random(seed)
    command, shape = chance.choice(sorted(CALLS))
    victim: Victim = chance.choice(("client", "engine", "provider", "all"))
    call = chance.randint(1, CALLS[command, shape])
    is_done = chance.random() < 0.5
    remedy: Remedy = "gc" if victim == "all" and chance.random() < 0.5 else "down"
    return Point(seed, command, shape, victim, call, is_done, remedy)
