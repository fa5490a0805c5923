"""Faults, with which the lab answers AWS's errors, to rehearse failures."""

from collections.abc import Collection, Mapping, Sequence

from config.errors import InputError
from config.target import Target
from lab import lifecycle, state
from lab.fault_kinds import FAULTS, parse
from lab.fault_table import HARDWARE, SLOW_NETWORK, read, write
from lab.machines import hardware_faults, slow_network
from lab.machines.instance_names import instance_ids
from lab.places import Places
from operations.chosen_target import ChosenTarget
from provision.aws.clients import aws_errors, client

__all__ = ["FAULTS"]

Faults = dict[str, tuple[str, ...]]
"""The faults that are set, with their arguments."""


def current(chosen: ChosenTarget) -> Faults:
    """Return the faults that are set in the lab."""
    return read(chosen.chosen_lab.faults)


def set_fault(chosen: ChosenTarget, name: str, arguments: Sequence[str] = ()) -> Faults:
    """Set a fault, from the next request on; return all that are set then.

    It applies until it is cleared, or the lab stops. Raises InputError for an unknown fault, for
    wrong arguments, and where the lab is down.
    """
    lab, given = chosen.chosen_lab, tuple(arguments)
    if name in ("spot-interruption", SLOW_NETWORK, HARDWARE):
        _require_up(lab)
        region = chosen.region or "us-east-1"
        given = _with_ids(name, given, lifecycle.target(lab, region))
    given = parse(name, given)
    _require_up(lab)
    before = read(lab.faults)
    faults = before | {name: given}
    write(lab.faults, faults)
    _apply(lab, {name}, before)
    return faults


def clear(chosen: ChosenTarget, names: Collection[str] = ()) -> Faults:
    """Clear the named faults, or all of them; return those that are left."""
    lab = chosen.chosen_lab
    _require_up(lab)
    before = read(lab.faults)
    if unknown := sorted(set(names) - set(before)):
        text = f"set are: {', '.join(before) or 'none'}"
        raise InputError(f"fault {unknown[0]} is not set", text)
    left = {name: before[name] for name in before if names and name not in names}
    write(lab.faults, left)
    _apply(lab, before.keys() - left.keys(), before)
    return left


def _with_ids(name: str, arguments: tuple[str, ...], target: Target) -> tuple[str, ...]:
    """Return the fault's arguments with the ids of the instances that they name."""
    if name == "spot-interruption":
        named = arguments[:-1] if arguments and arguments[-1].isdigit() else arguments
    elif name == "hardware":
        named = tuple(word for word in arguments if "=" not in word and ":" not in word)
        arguments = (*named, *(word for word in arguments if word not in named))
    else:
        named = arguments[:-1]
    spot = name == "spot-interruption"
    with aws_errors():
        ids = instance_ids(named, client(target, "ec2"), spot)
    return (*ids, *arguments[len(named) :])


def _apply(lab: Places, changed: Collection[str], before: Mapping[str, tuple[str, ...]]) -> None:
    """Let running machines show the faults that changed; `before` is the table until now."""
    if SLOW_NETWORK in changed:
        slow_network.limit_all(lab)
    if HARDWARE in changed:
        hardware_faults.apply(lab, before.get(HARDWARE, ()))


def _require_up(lab: Places) -> None:
    """Raise InputError where the lab is down: stopping it clears its faults."""
    if state.record(lab) is None:
        raise InputError("the lab is not running", f"start it with `{lab.command('start')}`")
