"""The facts of a node: a value, and the parser of what `facts.sh` prints on it.

A fact that a node did not give is empty or None, and no rule finds a fault in it, except where the
rule says so. The parser accepts any text.

The output of `dcgmi diag -r 3 -j` is one of them. DCGM 4: `{"DCGM Diagnostic": {"test_categories":
[{"tests": [{"name", "results": [{"entity_group", "entity_id", "status", "warnings":
[{"error_severity", "warning"}]}]}]}]}}` (NVIDIA/DCGM, testing/python3, 2026-11-23). DCGM 3 has the
key "DCGM GPU Diagnostic", `gpu_ids`, and texts as warnings.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class DcgmFailure:
    """A failed test of DCGM's diagnostic; `severity` is DCGM's number, 0 if it gives none."""

    test: str
    gpu: str
    severity: int
    text: str


def read_diagnostic(text: str, status: str) -> tuple[tuple[DcgmFailure, ...], str]:
    """Return the failed tests, and why there is no result; both are empty without output."""
    if not status:
        return (), ""
    try:
        document = json.loads(text)
        diagnostic = document.get("DCGM Diagnostic") or document["DCGM GPU Diagnostic"]
        failures = tuple(_failures(diagnostic["test_categories"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        last = (text.splitlines() or ["it printed nothing"])[-1]
        return (), f"dcgmi ended with {status}: {last[:200]}"
    return failures, ""


def _failures(categories: list[Any]) -> Iterator[DcgmFailure]:
    for test in (test for category in categories for test in category["tests"]):
        for result in test["results"]:
            if str(result["status"]).lower() != "fail":
                continue
            warnings = result.get("warnings") or [{}]
            first = warnings[0] if isinstance(warnings, list) else warnings
            known = first if isinstance(first, dict) else {"warning": first}
            severity = known.get("error_severity", 0)
            gpu = result.get("entity_id", result.get("gpu_ids", ""))
            words = str(known.get("warning", "no reason given"))
            number = severity if isinstance(severity, int) else 0
            yield DcgmFailure(str(test["name"]), str(gpu), number, words)


CHECKS = "/opt/gpuctl/verify"
"""A command on a node that compares its software with its cluster file, in a line for each."""

_BEGIN = "=== "
_EXIT = "exit "
_ENDED = ("124", "137")  # timeout(1): the command was ended, or killed
_COLUMNS_OF_DF = 5


@dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi shows it; `ecc` is None if it has no ECC."""

    index: int
    name: str
    bus: str
    driver: str
    is_persistent: bool
    ecc: int | None


@dataclass(frozen=True)
class RemappedRows:
    """The remapped rows of a GPU's memory: uncorrectable ones, and whether one waits or failed."""

    bus: str
    uncorrectable: int
    is_pending: bool
    has_failed: bool


@dataclass(frozen=True)
class Disk:
    """A file system: where it is mounted, its size and free space in KiB, its free inodes in %."""

    path: str
    size_kib: int
    free_kib: int
    free_inodes: int = 100


@dataclass(frozen=True)
class Loopback:
    """NCCL's test on one node over the network: its average bus bandwidth, or why it failed."""

    gbps: float
    error: str = ""


@dataclass(frozen=True)
class NodeFacts:
    """What a node said about itself.

    `smi_error` is nvidia-smi's complaint, `slowdowns` the reasons of throttling by GPU, `nvlinks`
    the active links by GPU. `efa` are EFA devices that the kernel has, `p2p` what EFA's driver says
    about peer memory for each device (None: it says nothing), `hmem` the devices that libfabric
    would use with GPU memory. `kernel_log` are lines about Xid errors, None if the log cannot be
    read. `memlock_kib` is math.inf if unlimited. `names` are names and the addresses that they have
    on this node. `checks` are those of `/opt/gpuctl/verify`: expected and actual by name, for those
    that failed; None if they did not run. `clock` is the node's time at the beginning, `took` the
    seconds until the end. `ended` are sections whose command did not end in time.

    Only after `--deep`: `dcgm` are the failed tests of DCGM's diagnostic, `dcgm_error` says why it
    gave no result, `loopback` is NCCL's test.
    """

    gpus: tuple[Gpu, ...] | None = None
    smi_error: str = ""
    slowdowns: dict[int, tuple[str, ...]] = field(default_factory=dict)
    remapped: tuple[RemappedRows, ...] = ()
    nvlinks: dict[int, int] = field(default_factory=dict)
    efa: int | None = None
    p2p: tuple[str, ...] | None = None
    hmem: int | None = None
    kernel_log: tuple[str, ...] | None = None
    memlock_kib: float | None = None
    disks: tuple[Disk, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] | None = None
    checks: dict[str, tuple[str, str]] | None = None
    clock: float | None = None
    took: float = 0.0
    ended: tuple[str, ...] = ()
    dcgm: tuple[DcgmFailure, ...] = ()
    dcgm_error: str = ""
    loopback: Loopback | None = None


@dataclass(frozen=True)
class _Section:
    lines: tuple[str, ...]
    status: str


def read(text: str) -> NodeFacts:
    """Return the facts in the output of `facts.sh`; whatever else it has is ignored."""
    sections = _sections(text)
    none = _Section((), "")
    gpus, smi_error = _gpus(sections.get("gpus"))
    direct = sections.get("gpudirect")
    dcgm, dcgm_error = read_diagnostic(*_text(sections.get("dcgm")))
    kernel = sections.get("kernel")
    names, verify = sections.get("names"), sections.get("verify")
    began = _number(sections.get("clock", none))
    ended = _number(sections.get("clock-end", none))
    return NodeFacts(
        gpus=gpus,
        smi_error=smi_error,
        slowdowns=dict(_slowdowns(sections.get("throttle", none))),
        remapped=tuple(_remapped(sections.get("remap", none))),
        nvlinks=_nvlinks(sections.get("nvlink", none)),
        efa=len(sections["efa"].lines) if "efa" in sections else None,
        p2p=_p2p(direct),
        hmem=None if direct is None else sum(line.startswith("hmem ") for line in direct.lines),
        # grep ends with 1 if no line fits: only a log that cannot be read says nothing at all.
        kernel_log=None if kernel is None else kernel.lines,
        memlock_kib=_memlock(sections.get("memlock", none)),
        disks=tuple(_disks(sections.get("disk", none))),
        versions=_versions(sections.get("versions", none)),
        names=None if names is None else _names(names),
        checks=None if verify is None else dict(_checks(verify)),
        clock=began,
        took=max(0.0, ended - began) if began is not None and ended is not None else 0.0,
        ended=tuple(name for name, section in sections.items() if section.status in _ENDED),
        dcgm=dcgm,
        dcgm_error=dcgm_error,
        loopback=_loopback(sections.get("loopback")),
    )


def _sections(text: str) -> dict[str, _Section]:
    """Return the sections that are complete, by their names."""
    sections: dict[str, _Section] = {}
    name, lines = "", list[str]()
    for line in text.splitlines():
        if not line.startswith(_BEGIN):
            lines.append(line.strip())
            continue
        word = line.removeprefix(_BEGIN)
        if word.startswith(_EXIT):
            if name:
                kept = tuple(each for each in lines if each)
                sections[name] = _Section(kept, word.removeprefix(_EXIT).strip())
            name = ""
        else:
            name = word.strip()
        lines = []
    return sections


def _cells(section: _Section, count: int) -> Iterator[list[str]]:
    """Yield the rows of a table of nvidia-smi (csv,noheader) that have `count` cells."""
    for line in section.lines:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == count:
            yield cells


def _gpus(section: _Section | None) -> tuple[tuple[Gpu, ...] | None, str]:
    """Return the GPUs, and nvidia-smi's complaint if it printed no GPU."""
    if section is None:
        return None, ""
    gpus = tuple(
        Gpu(int(row[0]), row[1], row[2], row[3], row[4] != "Disabled", _count(row[5]))
        for row in _cells(section, 6)
        if _is_number(row[0])
    )
    if gpus:
        return gpus, ""
    if section.status in _ENDED:
        return (), "nvidia-smi did not end in time"
    return (), section.lines[0] if section.lines else f"nvidia-smi ended with {section.status}"


def _slowdowns(section: _Section) -> Iterator[tuple[int, tuple[str, ...]]]:
    kinds = ("hardware", "hardware, temperature", "hardware, power brake", "software, temperature")
    for row in _cells(section, 5):
        active = tuple(k for k, cell in zip(kinds, row[1:], strict=True) if cell == "Active")
        if _is_number(row[0]) and active:
            yield int(row[0]), active


def _remapped(section: _Section) -> Iterator[RemappedRows]:
    for bus, uncorrectable, pending, failure in _cells(section, 4):
        is_pending, has_failed = (word in ("1", "Yes") for word in (pending, failure))
        yield RemappedRows(bus, _count(uncorrectable) or 0, is_pending, has_failed)


_GPU_LINE = re.compile(r"GPU (\d{1,4}):")
_LINK = re.compile(r"Link \d+: [0-9.]+ GB/s")


def _nvlinks(section: _Section) -> dict[int, int]:
    """Return the active links by GPU: `Link 0: 25 GB/s` under `GPU 0: NVIDIA A100 (UUID: …)`."""
    links: dict[int, int] = {}
    current: int | None = None
    for line in section.lines:
        if match := _GPU_LINE.match(line):
            current = int(match[1])
            links[current] = 0
        elif current is not None and _LINK.match(line):
            links[current] += 1
    return links


def _p2p(section: _Section | None) -> tuple[str, ...] | None:
    lines = section.lines if section else ()
    faults = tuple(
        line.removeprefix("p2p").strip() for line in lines if line == "p2p" or line[:4] == "p2p "
    )
    return faults or None


def _memlock(section: _Section) -> float | None:
    last = section.lines[-1] if section.lines else ""
    return math.inf if last == "unlimited" else float(last) if _is_number(last) else None


def _disks(section: _Section) -> Iterator[Disk]:
    """Yield each file system once; inodes are 0 where a file system does not count them."""
    seen = set()
    for line in section.lines:
        cells = line.split(None, _COLUMNS_OF_DF - 1)
        if len(cells) < _COLUMNS_OF_DF or not all(map(_is_number, cells[:2])):
            continue
        size, free, path = int(cells[0]), int(cells[1]), cells[4]
        inodes, free_inodes = (_count(cell) or 0 for cell in cells[2:4])
        if path not in seen:
            seen.add(path)
            yield Disk(path, size, free, min(100, 100 * free_inodes // inodes) if inodes else 100)


_SOFTWARE = ("kernel", "system", "EFA installer", "EFA driver", "NCCL", "CUDA", "Open MPI")


def _versions(section: _Section) -> dict[str, str]:
    versions: dict[str, str] = {}
    for line in section.lines:
        for name in _SOFTWARE:
            if version := line.removeprefix(f"{name} ") if line.startswith(f"{name} ") else "":
                versions.setdefault(name, version.strip())
    return versions


def _names(section: _Section) -> dict[str, str]:
    addresses: dict[str, str] = {}
    for line in section.lines:
        address, *names = line.split()
        for name in names:
            addresses.setdefault(name, address)
    return addresses


UNCHECKED = "checks on the node"
"""The name under which `checks` has checks that did not end as they should."""

_FAILED = re.compile(r"failed: (.+): expected (.*), actual (.*)")


def _checks(section: _Section) -> Iterator[tuple[str, tuple[str, str]]]:
    for line in section.lines:
        if match := _FAILED.fullmatch(line):
            yield match[1], (match[2], match[3])
    if section.status not in ("0", "1"):
        last = section.lines[-1] if section.lines else "it printed nothing"
        yield UNCHECKED, ("an end with 0 or 1", f"{section.status} ({last})")


def _text(section: _Section | None) -> tuple[str, str]:
    return ("\n".join(section.lines), section.status) if section else ("", "")


_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\b")
_WRONG = re.compile(r"# Out of bounds values\s*:\s*([0-9]{1,18})\b")


def _loopback(section: _Section | None) -> Loopback | None:
    if section is None:
        return None
    text, status = _text(section)
    average, wrong = _AVERAGE.search(text), _WRONG.search(text)
    if wrong and int(wrong[1]):
        return Loopback(0.0, f"{wrong[1]} wrong values")
    if status != "0" or average is None:
        last = section.lines[-1] if section.lines else "it printed nothing"
        return Loopback(0.0, f"ended with {status}: {last}")
    return Loopback(float(average[1]))


def _number(section: _Section) -> float | None:
    try:
        number = float(section.lines[0])
    except (IndexError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _count(text: str) -> int | None:
    return int(text) if _is_number(text) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
