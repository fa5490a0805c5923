"""Answers of good nodes: a p4d as the tools of its image print it, and its facts."""

from dataclasses import replace
from typing import Any

from provision.health.facts import read
from provision.health.judge import findings
from provision.health.model import AllFacts, Expected, Finding

ADDRESSES = {"node0": "10.213.1.10", "node1": "10.213.1.11", "node2": "10.213.1.12"}
P4D = Expected(
    gpus=8, model="A100", nvlinks=12, efa=4, has_gpudirect=True, addresses=ADDRESSES
)  # fmt: skip


def gpu_line(index: int, ecc: str = "0", persistence: str = "Enabled") -> str:
    bus = f"00000000:{0x10 + index:X}:00.0"
    return f"{index}, NVIDIA A100-SXM4-40GB, {bus}, 595.91.07, {persistence}, {ecc}"


def section(name: str, *lines: str, status: int = 0) -> str:
    return "\n".join((f"=== {name}", *lines, "", f"=== exit {status}", ""))


GPUS = [gpu_line(index) for index in range(8)]
SLOWDOWNS = [f"{index}, Not Active, Not Active, Not Active, Not Active" for index in range(8)]
REMAPPED = [f"00000000:{0x10 + index:X}:00.0, 0, 0, 0" for index in range(8)]
LINKS = [
    line
    for index in range(8)
    for line in (
        f"GPU {index}: NVIDIA A100-SXM4-40GB (UUID: GPU-6f1b)",
        *(f"\t Link {link}: 25 GB/s" for link in range(12)),
    )
]
DISK = [
    " 1K-blocks     Avail   Inodes    IFree Mounted on",
    " 304681132 213276793 39321600 38338560 /",
    " 581632812 581632812        0        - /dev/shm",
    " 304681132 213276793 39321600 38338560 /",
]
VERSIONS = [
    "kernel 7.0.0-1018-aws",
    "system Ubuntu 24.04.3 LTS",
    "EFA installer 1.50.0",
    "EFA driver 3.3.0",
    "NCCL 2.30.4",
    "CUDA 13.2",
    "Open MPI 4.1.7",
]
NAMES = [
    f"{address}   {name} ip-{address.replace('.', '-')}" for name, address in ADDRESSES.items()
]
PARTS = {
    "clock": ("1795424400.250000000",),
    "kernel": (),
    "memlock": ("unlimited",),
    "disk": DISK,
    "gpus": GPUS,
    "throttle": SLOWDOWNS,
    "remap": REMAPPED,
    "nvlink": LINKS,
    "efa": ("rdmap79s0", "rdmap79s1", "rdmap79s2", "rdmap79s3"),
    "gpudirect": ("p2p NVIDIA", "p2p NVIDIA", "p2p NVIDIA", "p2p NVIDIA"),
    "versions": VERSIONS,
    "names": NAMES,
    "verify": ("ok: GPUs: 8", "ok: Open MPI: 4"),
    "clock-end": ("1795424401.750000000",),
}


def answer(changes: dict[str, Any] | None = None) -> str:
    """The output of the script on a good p4d, with other sections; None leaves one out."""
    parts = PARTS | (changes or {})
    return "".join(section(name, *lines) for name, lines in parts.items() if lines is not None)


GOOD = read(answer())


def found(name: str = "node1", **changes: Any) -> list[Finding]:
    """The findings in three nodes, of which one has other facts than a good one."""
    answers = dict.fromkeys(ADDRESSES, GOOD) | {name: replace(GOOD, **changes)}
    return list(findings(AllFacts(P4D, answers)))


def texts(findings_: list[Finding]) -> list[str]:
    return [f"{one.severity} {one.node} {one.text}" for one in findings_]
