"""Two people, one account, the same names: who asks for what, and what must exist afterwards.

    .venv/bin/python -m tests.interleaving --seed 7 --steps 100     # root: machines of a lab

The steps are random, and the same for the same seed. Each of the two has a state folder of their
own. After every step the account has what its owners asked for, and nothing else: `account` is told
apart by clusters' ids.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

PEOPLE = ("ann", "ben")
NAMES = ("demo", "train")
NOBODYS_ID = "00000000"

Do = Literal["up", "down", "run"]
# How likely each command is for a name that one has, that the other has, that nobody has. A run and
# a command that is refused take less time than others.
_OWN: dict[Do, int] = {"run": 10, "up": 1, "down": 2}
_OTHERS: dict[Do, int] = {"run": 8, "up": 2, "down": 8}
_FREE: dict[Do, int] = {"run": 4, "up": 2, "down": 6}


@dataclass(frozen=True)
class Step:
    """One command of one of the two, and whether it has to be refused."""

    who: str
    do: Do
    name: str
    is_refused: bool

    def __str__(self) -> str:
        return f"{self.who}: {self.do} {self.name}" + (" (refused)" if self.is_refused else "")


class Account(Protocol):
    """Carries commands out, and knows what exists."""

    def do(self, step: Step) -> None:
        """Carry the step out; AssertionError where it is not refused as it has to be."""

    def ids(self) -> Mapping[str, set[str]]:
        """Return the ids of the clusters that exist, by name."""

    def known(self, who: str) -> Mapping[str, str]:
        """Return the ids of the clusters that are this person's, by name."""


def steps(seed: int, count: int) -> Iterator[Step]:
    """Yield commands of both in turn at random; a name that the other has is as good as any."""
    chance = random.Random(seed)
    owners: dict[str, str] = {}
    for _ in range(count):
        who, name = chance.choice(PEOPLE), chance.choice(NAMES)
        owner = owners.get(name)
        likely = _OWN if owner == who else _OTHERS if owner else _FREE
        (do,) = chance.choices(tuple(likely), tuple(likely.values()))
        is_refused = owner not in (None, who) or (owner is None and do != "up")
        if not is_refused and do == "up":
            owners[name] = who
        elif not is_refused and do == "down":
            del owners[name]
        yield Step(who, do, name, is_refused)
    for name, who in sorted(owners.items()):
        yield Step(who, "down", name, is_refused=False)


def carry_out(account: Account, seed: int, count: int) -> None:
    """Take all steps; after each of them the account is what its owners asked for."""
    owned: dict[tuple[str, str], str] = {}  # ids by owner and name
    for number, step in enumerate(steps(seed, count), 1):
        at = f"step {number} of seed {seed}, {step}"
        try:
            account.do(step)
        except AssertionError as error:
            raise AssertionError(f"{at}: {error}") from error
        place = step.who, step.name
        if not step.is_refused and step.do == "down":
            del owned[place]
        elif not step.is_refused and step.do == "up":
            made = account.known(step.who)[step.name]
            assert owned.setdefault(place, made) == made, f"{at}: another cluster than before"
        for who in PEOPLE:
            wanted = {name: one for (owner, name), one in owned.items() if owner == who}
            assert account.known(who) == wanted, f"{at}: {who} knows {account.known(who)}"
        if step.do == "run":
            continue
        wanted_ids: dict[str, set[str]] = {}
        for (_, name), one in owned.items():
            wanted_ids.setdefault(name, set()).add(one)
        there = account.ids()
        assert there == wanted_ids, f"{at}: {there} exist"


def main() -> int:
    """Interleave commands in a lab of its own; return 0 when all was as asked for."""
    from tests.e2e.test_two_people import people

    parser = argparse.ArgumentParser(prog="python -m tests.interleaving", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--steps", type=int, default=100)
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.steps} steps", flush=True)
    with tempfile.TemporaryDirectory() as folder, people(Path(folder)) as account:
        carry_out(account, asked.seed, asked.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
