"""The differences between a resource's state and its inputs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lab.provider.values import UNKNOWN, Properties

Kind = Literal["add", "delete", "update"]


@dataclass(frozen=True)
class Difference:
    """One property path (`tags.Name`, `networkInterfaces[1].deviceIndex`) that differs."""

    path: str
    kind: Kind
    replace: bool

    @property
    def property(self) -> str:
        """The resource's property that contains the path."""
        return self.path.partition(".")[0].partition("[")[0]


def differences(
    state: Properties, old_inputs: Properties, inputs: Properties, replacing: frozenset[str]
) -> tuple[Difference, ...]:
    """Return all differences between `state`, as last read, and `inputs`.

    A property counts if it is in `inputs`, or if it was in `old_inputs` and is not in `inputs` any
    more; other properties may have any value. `replacing` are the properties that AWS cannot change
    on an existing resource.
    """
    differing = []
    for name in sorted({*inputs, *old_inputs}):
        differing += [
            Difference(path, kind, name in replacing)
            for path, kind in _compare(name, state.get(name), inputs.get(name))
        ]
    return tuple(differing)


def _compare(path: str, old: Any, new: Any) -> Iterator[tuple[str, Kind]]:
    if _empty(old) and _empty(new):
        return
    if _empty(old) or _empty(new):
        yield path, "add" if _empty(old) else "delete"
    elif isinstance(old, dict) and isinstance(new, dict):
        yield from _compare_mappings(path, old, new)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _compare_lists(path, old, new)
    elif new == UNKNOWN or not _equal(old, new):
        yield path, "update"


def _compare_mappings(
    path: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[str, Kind]]:
    for key in sorted({*old, *new}):
        quoted = f'{path}["{key}"]' if ":" in key or "." in key else f"{path}.{key}"
        yield from _compare(quoted, old.get(key), new.get(key))


def _compare_lists(path: str, old: list[Any], new: list[Any]) -> Iterator[tuple[str, Kind]]:
    if all(isinstance(item, str) for item in [*old, *new]) and sorted(old) == sorted(new):
        return  # lists of ids and addresses are sets: their order does not matter
    for index in range(max(len(old), len(new))):
        before = old[index] if index < len(old) else None
        after = new[index] if index < len(new) else None
        yield from _compare(f"{path}[{index}]", before, after)


def _empty(value: Any) -> bool:
    """Return whether the value is absent, false or empty: AWS treats them alike."""
    return value in (None, "", [], {}) or value is False


def _equal(old: Any, new: Any) -> bool:
    """Return whether AWS treats both alike: templates contain booleans and numbers as text."""
    if isinstance(old, str) != isinstance(new, str):
        return str(old).lower() == str(new).lower()
    return bool(old == new)
