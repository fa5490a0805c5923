"""The JSON of nccl-tests (engine/agent/node/nccl_json_files.py) as a table.

Formats: src/util.cu of nccl-tests 2.17.3 to 2.19.6, JSON_FILE_VERSION 1 to 3 (2026-11-22).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.agent.judge.tables import ReadTable, nccl_version
from engine.contract.table import Row, TableRank, Timing
from engine.contract.worker_events import ITERATIONS


def read(document: dict[str, Any], printed_on: int, case: int = 0) -> ReadTable:
    """Return the table of a case's document; ValueError, KeyError or TypeError for other ones."""
    config = document["config"]
    factor = "step_factor" in config
    table = ReadTable(printed_on, case, program=Path(document["args"][0]).name)
    table.nccl = nccl_version(int(document["nccl_version"]))
    table.flags = {
        "threads": _whole(config["nthreads"]),
        "gpus": _whole(config["ngpus"]),
        "min_bytes": _whole(config["minimum_bytes"]),
        "max_bytes": _whole(config["maximum_bytes"]),
        "step": _whole(config["step_factor" if factor else "step_bytes"]),
        "factor": int(factor),
        "warmup": _whole(config["warmup_iters"]),
        "iterations": _whole(config["iterations"]),
        "aggregated": _whole(config["aggregated_iterations"]),
        "checks": _whole(config["validation"]),
        "graph": _whole(config["graph"]),
    }
    table.replace_ranks(_rank(device) for device in config.get("devices", ()))
    table.add_rows([_row(result) for result in document["results"]])
    if "out_of_bounds" in document:
        table.out_of_bounds = _whole(document["out_of_bounds"]["count"])
    for name, key in (  # 2.17.3 to 2.17.8 misspell both
        ("average_bus_bandwidth", "bandwidth"),
        ("average_bus_bandwidith", "bandwidith"),
    ):
        if name in document:
            table.average_busbw = float(document[name][key])
            table.too_slow = document[name]["okay"] == "false"
    return table


def _whole(value: Any) -> int:
    """Return the value as a number that an event may have."""
    number = int(value)
    if abs(number) >= 1 << 63:
        raise ValueError(value)
    return number


def _rank(device: dict[str, Any]) -> TableRank:
    return TableRank(
        rank=_whole(device["rank"]),
        group=_whole(device["group"]),
        pid=_whole(device["pid"]),
        host=str(device["hostname"]),
        device=_whole(device["device"]),
        pci=str(device["device_hex"]),
        name=str(device["device_info"]),
    )


def _row(result: dict[str, Any]) -> Row:
    return Row(
        size=_whole(result["size"]),
        count=_whole(result["count"]),
        dtype=str(result["type"]),
        redop=str(result["redop"]),
        root=_whole(result["root"]),
        out_of_place=_half(result, "out_of_place"),
        in_place=_half(result, "in_place"),
    )


def _half(row: dict[str, Any], name: str) -> Timing | None:
    half = row.get(name)
    if half is None:
        return None
    time_us = half["time"] if "time" in half else half["cpu_time"]
    wrong = half["nwrong"]
    iterations = row.get(f"{name}_per_iter") or {}
    return Timing(
        float(time_us),
        float(half["alg_bw"]),
        float(half["bus_bw"]),
        wrong=None if wrong is None else _whole(wrong),
        iterations=tuple(float(iterations[key]) for key in ITERATIONS if key in iterations),
    )
