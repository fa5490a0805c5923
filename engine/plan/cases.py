"""The cases of a run of nccl-tests, one call of a program each, and their gates, without I/O.

`--dry-run` prints them, the head's script runs them one after the other, each table is stored with
its case, and gates, bandwidths that cases must reach, name them by number. The head judges gates
(engine/agent/judge/output_checks.py), so that they hold without a client.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from config.catalogue.reference_figures import SHARE, Figure, figures_of
from config.duration import byte_count
from config.quantities import counted
from config.run.run_file import NcclTests, Scope
from config.run.sweep_rules import sizes_between
from engine.contract.plan import Case, Gate, Sweep


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


RUN_FILE = "run file"


@dataclass(frozen=True)
class _Measured:
    """A case at one of its sizes, with the numbers of its repetitions."""

    case: Case
    size: int
    numbers: tuple[int, ...]

    def gate(self, busbw: float, source: str) -> Gate:
        """Return the gate that expects `busbw`."""
        return Gate(
            title=case_title(self.case, self.size, self.size),
            cases=self.numbers,
            size=self.size,
            busbw=busbw,
            source=source,
        )


def plan_sweep(
    run: NcclTests, cases: tuple[Case, ...], instance_type: str, nodes: int
) -> tuple[Sweep, tuple[str, ...]]:
    """Return the sweep with its gates, and a warning for all that has no public figure."""
    measured = list(_measured(run, cases))
    warnings: tuple[str, ...] = ()
    if run.expect == "reference":
        gates, warnings = _reference_gates(measured, instance_type, nodes)
    else:
        gates = [gate for each in measured for gate in _own_gates(run, each)]
    return Sweep(cases=cases, gates=tuple(gates)), warnings


def _measured(run: NcclTests, cases: tuple[Case, ...]) -> Iterator[_Measured]:
    for case in cases:
        if case.repetition == 1:
            numbers = tuple(range(case.number, case.number + run.repeat))
            for size in sizes_between(case.min_bytes, case.max_bytes, run.factor):
                yield _Measured(case, size, numbers)


def _own_gates(run: NcclTests, measured: _Measured) -> Iterator[Gate]:
    """Yield the gate of the run file for a case at this size, if there is one."""
    gates = run.expect if isinstance(run.expect, dict) else {}
    gate = gates.get(measured.case.collective)
    if gate is None or byte_count(gate.at) != measured.size:
        return
    if gate.scope in (None, measured.case.scope):
        yield measured.gate(float(gate.busbw.removeprefix(">=")), RUN_FILE)


def _reference_gates(
    measured: list[_Measured], instance_type: str, nodes: int
) -> tuple[list[Gate], tuple[str, ...]]:
    """Return the gates from public figures, and a warning for each subject without a gate."""
    gates = []
    reasons: dict[str, str] = {}
    judged = set()
    for each in measured:
        on = 1 if each.case.node else nodes
        subject = f"{_test(each.case)} on {on} x {instance_type}"
        figures = figures_of(instance_type, on, each.case.collective)
        if not _has_usual_test(each.case):
            figures = ()
        for figure in figures:
            if byte_count(figure.size) == each.size:
                gates.append(each.gate(SHARE * figure.busbw, _source(figure)))
                judged.add(subject)
        sizes = " and ".join(binary_size(byte_count(figure.size)) for figure in figures)
        known = f"the public figures are of {sizes}, which this run does not measure"
        reasons[subject] = known if figures else "no public figure is known"
    return gates, tuple(
        f"`expect: reference` does not judge {subject}: {reason}"
        for subject, reason in reasons.items()
        if subject not in judged
    )


def _has_usual_test(case: Case) -> bool:
    """Return whether the case is what public figures are of: all GPUs, float, sum."""
    usual = case.dtype in ("", "float") and case.redop in ("", "sum")
    return usual and case.scope != "inter" and not case.gpus_per_node


def _test(case: Case) -> str:
    words = [
        case.collective,
        case.dtype,
        case.redop,
        "one GPU per node" if case.scope == "inter" else "",
        f"{case.gpus_per_node} GPUs per node" if case.gpus_per_node else "",
    ]
    return ", ".join(word for word in words if word)


def _source(figure: Figure) -> str:
    return f"{SHARE:.0%} of {figure.busbw:g} GB/s, {figure.source}, {figure.read}"
