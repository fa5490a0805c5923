"""What runs measured: their tables and findings, comparisons, baselines."""

import re
from dataclasses import dataclass

from config.errors import InputError
from engine.analysis.comparison import Comparison
from engine.analysis.comparison import compare as compare_tables
from engine.record.history import History, KeptFinding, RunRecord
from engine.record.journal_copy import recorded_events
from engine.record.result import Table
from operations.chosen_target import ChosenTarget

__all__ = ["Comparison", "KeptFinding", "Table"]


@dataclass(frozen=True)
class RunResults:
    """What a run measured, and the names of its nodes by their ranks."""

    record: RunRecord
    tables: tuple[Table, ...]
    findings: tuple[KeptFinding, ...]
    node_names: tuple[str, ...]


def results(chosen: ChosenTarget, record: RunRecord) -> RunResults:
    """Return what the run measured."""
    runs = chosen.runs
    with History(runs) as history:
        tables, findings = history.tables(record.run_id), history.findings(record.run_id)
    started = next(recorded_events(runs, record.run_id), None)
    names = [node.name for node in getattr(started, "nodes", ())]
    names += [f"node{rank}" for rank in range(len(names), record.nodes)]
    return RunResults(record, tables, findings, tuple(names))


def tables(chosen: ChosenTarget, record: RunRecord) -> tuple[Table, ...]:
    """Return the nccl-tests tables of the run."""
    with History(chosen.runs) as history:
        return history.tables(record.run_id)


def compare(chosen: ChosenTarget, before: RunRecord, after: RunRecord) -> Comparison:
    """Compare two runs; InputError if one of them has no nccl-tests table."""
    both = []
    for record in (before, after):
        both.append(tables(chosen, record))
        if not both[-1]:
            raise InputError(
                f"run {record.run_id} printed no nccl-tests table", "`gpuctl ps` lists other runs"
            )
    return compare_tables(*both)


def baseline(chosen: ChosenTarget, name: str) -> RunRecord:
    """Return the run that is kept as this baseline; InputError for an unknown name."""
    with History(chosen.runs) as history:
        return history.baseline(name)


def keep_baseline(chosen: ChosenTarget, name: str, record: RunRecord) -> None:
    """Keep the run as a baseline. InputError if later runs cannot be measured against it."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
        raise InputError(
            f"'{name}' cannot be a baseline's name",
            "use up to 63 letters, digits, dots, dashes and underscores; begin with a letter or"
            " digit",
        )
    if record.status != "done" or not tables(chosen, record):
        why = "printed no nccl-tests table" if record.status == "done" else f"is {record.status}"
        raise InputError(
            f"run {record.run_id} {why}: it cannot be a baseline",
            "keep a run that is done and has tables; `gpuctl ps` lists the runs",
        )
    with History(chosen.runs) as history:
        history.keep_baseline(name, record.run_id)
