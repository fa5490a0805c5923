"""The cases of a run of nccl-tests: one call of a program each, listed in order without I/O.

`--dry-run` prints them, the head's script runs them one after the other, each table is stored with
its case, and gates (engine/plan/gates.py) name them by number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from config.quantities import counted
from config.run.run_file import NcclTests, Scope
from config.run.size import byte_count
from engine.contract.plan import Case


def list_cases(run: NcclTests, nodes: Sequence[str]) -> tuple[Case, ...]:
    """Return the run's cases on the nodes with these names, in the order in which they run.

    What changes most is last: repetitions of a case follow each other.
    """
    sizes = tuple((size, size) for size in run.sizes) or ((run.min_bytes, run.max_bytes),)
    lists = product(
        run.collectives,
        run.dtypes or ("",),
        run.redops or ("",),
        [place for scope in run.scopes for place in _places(scope, nodes)],
        run.gpus_per_node or (0,),
        tuple(_variants(run)),
        sizes,
        range(1, run.repeat + 1),
    )
    cases: list[Case] = []
    for collective, dtype, redop, (scope, node), gpus, variables, (least, most), number in lists:
        case = Case(
            number=len(cases) + 1,
            title="",
            collective=collective,
            min_bytes=byte_count(least),
            max_bytes=byte_count(most),
            dtype=dtype,
            redop=redop,
            scope=scope,
            node=node,
            gpus_per_node=gpus,
            variables=variables,
            repetition=number,
        )
        title = case_title(case, case.min_bytes, case.max_bytes, run.repeat)
        cases.append(replace(case, title=title))
    return tuple(cases)


def _places(scope: Scope, nodes: Sequence[str]) -> list[tuple[Scope, str]]:
    """Return the scope once, or for each node if every node is measured alone."""
    return [(scope, node) for node in nodes] if scope == "intra" else [(scope, "")]


def _variants(run: NcclTests) -> Iterator[dict[str, str]]:
    """Yield every combination of the environment variables of `sweep`."""
    for values in product(*run.sweep.values()):
        yield dict(zip(run.sweep, values, strict=True))


def case_title(case: Case, smallest: int, largest: int, repeat: int = 1) -> str:
    """Return the case in words: `all_gather 64 MiB, one GPU per node, NCCL_ALGO=Ring`.

    `smallest` and `largest` are the sizes to name. Only with a `repeat` above 1 the repetition is
    named.
    """
    size = binary_size(largest)
    if smallest != largest:
        size = f"{binary_size(smallest)} to {size}"
    parts = [
        f"{case.collective} {size}",
        case.dtype,
        case.redop,
        f"{case.node} alone" if case.node else "",
        "one GPU per node" if case.scope == "inter" else "",
        f"{counted(case.gpus_per_node, 'GPU')} per node" if case.gpus_per_node else "",
        *(f"{name}={value}" for name, value in case.variables.items()),
        f"repetition {case.repetition} of {repeat}" if repeat > 1 else "",
    ]
    return ", ".join(part for part in parts if part)


def binary_size(size: int) -> str:
    """Return the size in the largest unit that is exact: `64 MiB`, `8 B`."""
    for unit, width in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % width == 0:
            return f"{size // width} {unit}"
    return f"{size} B"


def size_flag(size: int) -> str:
    """Return the size as nccl-tests' flags have it: `64M`, `8`."""
    number, unit = binary_size(size).split()
    return number + unit.removesuffix("iB").removesuffix("B")
