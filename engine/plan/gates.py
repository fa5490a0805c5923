"""The gates of a run of nccl-tests: bandwidths that its cases must reach, planned without I/O.

The head judges them (engine/agent/judge/bandwidth_gates.py), so that they hold without a client.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from config.catalogue.reference_figures import SHARE, Figure, figures_of
from config.run.run_file import NcclTests
from config.run.size import byte_count
from config.run.sweep_rules import sizes_between
from engine.contract.plan import Case, Gate, Sweep
from engine.plan.cases import binary_size, case_title

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
