"""Rules about the lists of a run of nccl-tests: sizes, reductions, scopes, variables, gates."""

import math
import re
from collections.abc import Iterator
from typing import Any

from config.cluster.cluster_rules import Data
from config.duration import SIZE, byte_count
from config.mistakes import Mistake
from config.run.owned_variables import owner
from config.run.role_rules import total_nodes
from config.run.run_file import NcclTests
from config.yaml.hints import names_hint

MOST_CASES = 1000
"""The most cases of a run; with 10 s each they take almost 3 hours."""

REDUCING = ("all_reduce", "reduce", "reduce_scatter")
"""The collectives that reduce: `-o` changes nothing in the others (src of nccl-tests 2.19.6,
https://github.com/NVIDIA/nccl-tests, 2026-11-22)."""

_RANGE = ("min_bytes", "max_bytes", "factor")


def sweep_mistakes(data: Data) -> Iterator[Mistake]:
    """Yield the mistakes in the lists of a run of nccl-tests."""
    yield from _range(data)
    yield from _sizes(data)
    yield from _redops(data)
    yield from _places(data)
    yield from _variables(data)
    yield from _number_of_cases(data)
    yield from _gates(data)


def _range(data: Data) -> Iterator[Mistake]:
    """Yield a mistake if the smallest message is above the largest; both have defaults."""
    smallest, largest = _limits(data)
    if not all(re.fullmatch(SIZE, size) for size in (smallest, largest)):
        return
    if byte_count(smallest) > byte_count(largest):
        message = f"'min_bytes' is {smallest}, more than 'max_bytes', which is {largest}"
        at = "min_bytes" if "min_bytes" in data else "max_bytes"
        yield Mistake("E222", message, "change one of them", (at,))


def _sizes(data: Data) -> Iterator[Mistake]:
    for name in _RANGE:
        if "sizes" in data and name in data:
            message = f"'{name}' has no effect: 'sizes' lists every size"
            yield Mistake("E223", message, "remove one of them", (name,), on_key=True)


def _redops(data: Data) -> Iterator[Mistake]:
    without = [name for name in _collectives(data) if name not in REDUCING]
    if "redops" in data and without:
        message = f"'redops' has no effect on {without[0]}, which reduces nothing"
        hint = f"remove it, or keep to {', '.join(REDUCING)}"
        yield Mistake("E223", message, hint, ("redops",), on_key=True)


def _places(data: Data) -> Iterator[Mistake]:
    scopes = _list(data, "scopes")
    if "inter" in scopes and total_nodes(data, "nccl-tests") == 1:
        message = "'scopes' has inter, but 'nodes' is 1"
        yield Mistake("E223", message, "write nodes: 2 or more", ("scopes",))
    if "gpus_per_node" not in data:
        return
    if "inter" in scopes:
        message = "'gpus_per_node' has no effect on scope inter, which takes one GPU of each node"
        yield Mistake("E223", message, "remove one of them", ("gpus_per_node",), on_key=True)
    if "procs_per_node" in data:
        message = "'gpus_per_node' and 'procs_per_node' both set the ranks of a node"
        yield Mistake("E223", message, "remove one of them", ("procs_per_node",), on_key=True)


def _variables(data: Data) -> Iterator[Mistake]:
    swept, env = data.get("sweep"), data.get("env")
    fixed = env if isinstance(env, dict) else [str(entry).partition("=")[0] for entry in env or ()]
    for name in swept if isinstance(swept, dict) else ():
        row = owner("nccl-tests", name)
        if row is not None:
            message = f"'{name}' cannot be set in 'sweep': {row.why}"
            yield Mistake(
                "E221", message, "remove it, or choose another name", ("sweep", name), True
            )
        elif name in fixed:
            message = f"'{name}' is in 'sweep' and in 'env'"
            yield Mistake("E223", message, "remove one of them", ("sweep", name), on_key=True)


def _number_of_cases(data: Data) -> Iterator[Mistake]:
    swept, scopes = data.get("sweep"), _list(data, "scopes")
    nodes, repeat = total_nodes(data, "nccl-tests"), data.get("repeat", 1)
    if type(nodes) is not int or type(repeat) is not int:
        return
    lists = ("collectives", "sizes", "dtypes", "redops", "gpus_per_node")
    variants = (
        [values for values in swept.values() if isinstance(values, tuple)]
        if (isinstance(swept, dict))
        else []
    )
    places = len(scopes) + scopes.count("intra") * (nodes - 1)
    cases = math.prod(
        (*(len(_list(data, name)) or 1 for name in lists), *map(len, variants), places or 1, repeat)
    )
    if cases > MOST_CASES:
        message = f"the lists make {cases} cases, more than {MOST_CASES}"
        yield Mistake("E202", message, "shorten a list, or make two runs of it")


def _gates(data: Data) -> Iterator[Mistake]:
    if "expect" in data and data.get("verify") == "off":
        message = "'expect' has no effect: 'verify' is off"
        yield Mistake("E223", message, "remove one of them", ("expect",), on_key=True)
    gates = data.get("expect")
    for name, gate in gates.items() if isinstance(gates, dict) else ():
        at = ("expect", name)
        measured = _collectives(data)
        if name not in measured:
            message = f"'expect' has {name}, which is not among 'collectives'"
            yield Mistake("E223", message, names_hint(str(name), tuple(measured)), at, on_key=True)
        elif isinstance(gate, dict):
            yield from _gate_size(data, gate, name)
            yield from _gate_scope(data, gate, name)


def _gate_size(data: Data, gate: Data, name: str) -> Iterator[Mistake]:
    size = str(gate.get("at"))
    if not re.fullmatch(SIZE, size):
        return
    measured = _measured_sizes(data)
    if measured and byte_count(size) not in measured:
        listed = _list(data, "sizes")
        smallest, largest = _limits(data)
        sizes = ", ".join(map(str, listed)) or (
            f"{smallest} to {largest} by factor {data.get('factor', _default('factor'))}"
        )
        message = f"'expect.{name}.at' is {size}, which is not measured"
        yield Mistake("E223", message, f"use one of the sizes: {sizes}", ("expect", name, "at"))


def _gate_scope(data: Data, gate: Data, name: str) -> Iterator[Mistake]:
    scopes = _list(data, "scopes") or [*_default("scopes")]
    allowed = ", ".join(map(str, scopes))
    if "scope" not in gate and len(scopes) > 1:
        message = f"'expect.{name}.scope' is missing: there are several 'scopes'"
        yield Mistake("E102", message, f"add one of them: {allowed}", ("expect", name), on_key=True)
    elif "scope" in gate and gate["scope"] not in scopes:
        message = f"'expect.{name}.scope' is {gate['scope']}, which is not measured"
        yield Mistake("E223", message, f"use one of 'scopes': {allowed}", ("expect", name, "scope"))


def sizes_between(smallest: int, largest: int, factor: int) -> Iterator[int]:
    """Yield the sizes that nccl-tests measures: each is `factor` times the one before."""
    size = smallest
    while size <= largest:
        yield size
        size *= factor


def _measured_sizes(data: Data) -> frozenset[int]:
    """Return the message sizes in bytes that the run measures; empty if they are not valid."""
    listed = [str(size) for size in _list(data, "sizes")]
    factor = data.get("factor", _default("factor"))
    limits = _limits(data)
    if not all(re.fullmatch(SIZE, size) for size in (*listed, *limits)):
        return frozenset()
    if listed or type(factor) is not int or factor < 2:
        return frozenset(map(byte_count, listed))
    smallest, largest = map(byte_count, limits)
    return frozenset(sizes_between(smallest, largest, factor))


def _limits(data: Data) -> tuple[str, str]:
    smallest, largest = (str(data.get(name, _default(name))) for name in ("min_bytes", "max_bytes"))
    return smallest, largest


def _collectives(data: Data) -> list[Any]:
    return _list(data, "collectives") or [*_default("collectives")]


def _list(data: Data, name: str) -> list[Any]:
    """Return the entries of a list; none if it is missing or no list."""
    written = data.get(name)
    return [*written] if isinstance(written, (list, tuple)) else []


def _default(name: str) -> Any:
    return NcclTests.model_fields[name].default
