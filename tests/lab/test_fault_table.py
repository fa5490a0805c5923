"""The table of faults: every change of the file is seen, although it is not read each time."""

import json
import os
import time
from pathlib import Path

import pytest

from lab import fault_table

HOUR_NS = 3600 * 10**9


def _age(file: Path, ago_ns: int) -> None:
    when = time.time_ns() - ago_ns
    os.utime(file, ns=(when, when))


def test_a_changed_table_is_read_again(tmp_path: Path) -> None:
    table = tmp_path / "faults.json"
    assert fault_table.read(table) == {}
    fault_table.write(table, {"capacity": ("1",)})
    _age(table, HOUR_NS)
    assert fault_table.read(table) == {"capacity": ("1",)}
    fault_table.write(table, {"capacity": ("2",)})
    assert fault_table.read(table) == {"capacity": ("2",)}
    _age(table, 2 * HOUR_NS)
    assert fault_table.read(table) == {"capacity": ("2",)}
    table.unlink()
    assert fault_table.read(table) == {}


def test_a_table_that_changes_twice_at_one_time_is_read_again(tmp_path: Path) -> None:
    table = tmp_path / "faults.json"
    now = time.time_ns()
    for number in "12":
        table.write_text(json.dumps({"capacity": [number]}))
        os.utime(table, ns=(now, now))
        assert fault_table.read(table) == {"capacity": (number,)}


def test_an_old_table_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "faults.json"
    fault_table.write(table, {"capacity": ("1",)})
    _age(table, HOUR_NS)
    read: list[Path] = []
    text = Path.read_text

    def noted(path: Path) -> str:
        read.append(path)
        return text(path)

    monkeypatch.setattr(Path, "read_text", noted)
    for _ in range(3):
        assert fault_table.read(table) == {"capacity": ("1",)}
    assert read == [table]
