"""The JSON of nccl-tests (engine/agent/node/nccl_json_files.py) as a table.

Formats: src/util.cu of nccl-tests 2.17.3 to 2.19.6, JSON_FILE_VERSION 1 to 3 (2026-11-22).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.agent.judge.tables import ReadTable, nccl_version
from engine.contract.events import ITERATIONS
from engine.contract.table import Row, TableRank, Timing


def read(document: dict[str, Any], printed_on: int, case: int = 0) -> ReadTable:
    """Return the table of a case's document; ValueError, KeyError or TypeError for other ones."""
    config = document["config"]
    factor = "step_factor" in config
    table = ReadTable(printed_on, case, program=Path(document["args"][0]).name)
    table.nccl = nccl_version(int(document["nccl_version"]))
    table.flags = {
        "threads": config["nthreads"],
        "gpus": config["ngpus"],
        "min_bytes": config["minimum_bytes"],
        "max_bytes": config["maximum_bytes"],
        "step": config["step_factor" if factor else "step_bytes"],
        "factor": int(factor),
        "warmup": config["warmup_iters"],
        "iterations": config["iterations"],
        "aggregated": config["aggregated_iterations"],
        "checks": config["validation"],
        "graph": config["graph"],
    }
    table.ranks = [
        TableRank(
            *(one["rank"], one["group"], one["pid"], one["hostname"], one["device"]),
            *(one["device_hex"], one["device_info"]),
        )
        for one in config.get("devices", ())
    ]
    table.rows = [_row(one) for one in document["results"]]
    if "out_of_bounds" in document:
        table.out_of_bounds = int(document["out_of_bounds"]["count"])
    for name, key in (  # 2.17.3 to 2.17.8 misspell both
        ("average_bus_bandwidth", "bandwidth"),
        ("average_bus_bandwidith", "bandwidith"),
    ):
        if name in document:
            table.average_busbw = float(document[name][key])
            table.too_slow = document[name]["okay"] == "false"
    return table


def _row(one: dict[str, Any]) -> Row:
    return Row(
        size=int(one["size"]),
        count=int(one["count"]),
        dtype=str(one["type"]),
        redop=str(one["redop"]),
        root=int(one["root"]),
        out_of_place=_half(one, "out_of_place"),
        in_place=_half(one, "in_place"),
    )


def _half(row: dict[str, Any], name: str) -> Timing | None:
    half = row.get(name)
    if half is None:
        return None
    time_us = half["time"] if "time" in half else half["cpu_time"]
    wrong = half["nwrong"]
    iterations = row.get(f"{name}_per_iter") or {}
    return Timing(
        *(float(time_us), float(half["alg_bw"]), float(half["bus_bw"])),
        wrong=None if wrong is None else int(wrong),
        iterations=tuple(float(iterations[key]) for key in ITERATIONS if key in iterations),
    )


def merge(tables: list[ReadTable], document: ReadTable) -> ReadTable:
    """Merge a document's table into the one from the text, or append it; return the table."""
    key = (document.case, document.program, False)
    same = (table for table in tables if (table.case, table.program, table.has_json) == key)
    table = next(same, None)
    if table is None:
        table = document
        tables.append(table)
    table.has_json = True
    if len(document.rows) >= len(table.rows):
        stamps = {(row.size, row.dtype, row.redop, row.root): row.at for row in table.rows}
        table.joined.clear()
        table.rows = [
            replace(row, at=stamps.get((row.size, row.dtype, row.redop, row.root), ""))
            for row in document.rows
        ]
    table.flags = {**table.flags, **document.flags}
    table.ranks = document.ranks or table.ranks
    table.nccl = document.nccl
    if document.has_footer:
        table.out_of_bounds = document.out_of_bounds
        table.average_busbw, table.too_slow = document.average_busbw, document.too_slow
    return table
