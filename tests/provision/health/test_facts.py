"""The parser of a node's facts: what the tools print, and whatever else could come."""

import json
import math
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.health.facts import DcgmFailure, Disk, Gpu, Loopback, NodeFacts, RemappedRows, read
from tests.provision.health.examples import PARTS, answer, gpu_line, section


def test_a_good_p4d() -> None:
    facts = read(answer())
    assert facts.gpus is not None and len(facts.gpus) == 8
    assert facts.gpus[1] == Gpu(
        1, "NVIDIA A100-SXM4-40GB", "00000000:11:00.0", "595.91.07", is_persistent=True, ecc=0
    )
    assert facts.slowdowns == {}
    assert facts.remapped[0] == RemappedRows("00000000:10:00.0", 0, False, False)
    assert facts.nvlinks == dict.fromkeys(range(8), 12)
    assert (facts.efa, facts.p2p, facts.hmem) == (4, ("NVIDIA",) * 4, 0)
    assert (facts.kernel_log, facts.memlock_kib) == ((), math.inf)
    assert facts.disks == (
        Disk("/", 304681132, 213276793, 97),
        Disk("/dev/shm", 581632812, 581632812, 100),
    )
    assert facts.versions["Open MPI"] == "4.1.7"
    assert facts.versions["system"] == "Ubuntu 24.04.3 LTS"
    assert facts.names is not None
    assert (facts.names["node1"], facts.names["ip-10-213-1-11"]) == ("10.213.1.11", "10.213.1.11")
    assert (facts.checks, facts.ended) == ({}, ())
    assert (facts.clock, facts.took) == (1795424400.25, 1.5)


def test_nothing_is_known_of_a_node_that_says_nothing() -> None:
    assert read("Welcome\nmotd\n") == NodeFacts()


@pytest.mark.parametrize(
    ("lines", "status", "error"),
    [
        (
            (
                "Failed to initialize NVML: Driver/library version mismatch",
                "NVML library version: 5",
            ),
            18,
            "Failed to initialize NVML: Driver/library version mismatch",
        ),
        ((), 127, "nvidia-smi ended with 127"),
        ((), 124, "nvidia-smi did not end in time"),
        (
            ('Field "ecc" is not a valid field to query.',),
            2,
            'Field "ecc" is not a valid field to query.',
        ),
    ],
)
def test_nvidia_smi_that_fails(lines: tuple[str, ...], status: int, error: str) -> None:
    facts = read(section("gpus", *lines, status=status))
    assert (facts.gpus, facts.smi_error) == ((), error)
    assert facts.ended == (("gpus",) if status == 124 else ())


def test_gpus_without_ecc_and_persistence() -> None:
    facts = read(section("gpus", gpu_line(0, "[N/A]", "Disabled"), gpu_line(1, "3")))
    assert [(gpu.ecc, gpu.is_persistent) for gpu in facts.gpus or ()] == [(None, False), (3, True)]


def test_slowdowns_remapped_rows_and_links() -> None:
    text = section("throttle", "0, Not Active, Active, Not Active, Not Active", "1, Active, Active")
    text += section(
        "remap", "0:1, 2, 0, 0", "0:2, 0, 1, 0", "0:3, 0, No, Yes", "0:4, [N/A], No, No"
    )
    text += section(
        "nvlink", "GPU 0: x (UUID: y)", " Link 0: 25 GB/s", " Link 1: <inactive>", "GPU 1: x"
    )
    facts = read(text)
    assert facts.slowdowns == {0: ("hardware, temperature",)}
    assert [(r.uncorrectable, r.is_pending, r.has_failed) for r in facts.remapped] == [
        (2, False, False), (0, True, False), (0, False, True), (0, False, False)
    ]  # fmt: skip
    assert facts.nvlinks == {0: 1, 1: 0}


def test_peer_memory_that_no_driver_offers() -> None:
    assert read(section("gpudirect", "p2p ", "p2p NVIDIA peermem")).p2p == ("", "NVIDIA peermem")
    libfabric = read(section("gpudirect", "hmem rdmap79s0-rdm", "hmem rdmap79s1-rdm"))
    assert (libfabric.p2p, libfabric.hmem) == (None, 2)


def test_checks_of_the_node() -> None:
    lines = ("ok: GPUs: 8", "failed: NCCL: expected libnccl.so.2.30.4, actual nothing", "noise")
    assert read(section("verify", *lines, status=1)).checks == {
        "NCCL": ("libnccl.so.2.30.4", "nothing")
    }
    assert read(section("verify", "sh: not found", status=127)).checks == {
        "checks on the node": ("an end with 0 or 1", "127 (sh: not found)")
    }


RESULT = {"entity_group": "GPU", "entity_id": 1, "status": "Fail"}
WARNINGS = [{"error_category": 1, "error_id": 38, "error_severity": 2, "warning": "bad page"}]


def diagnostic(key: str, *results: dict[str, Any]) -> str:
    tests = [{"name": "memory", "results": results, "test_summary": {"status": "Fail"}}]
    return json.dumps({key: {"test_categories": [{"category": "Hardware", "tests": tests}]}})


def test_diagnostics_of_dcgm_4_and_3() -> None:
    passed = {"entity_group": "GPU", "entity_id": 0, "status": "Pass"}
    four = diagnostic("DCGM Diagnostic", passed, RESULT | {"warnings": WARNINGS})
    facts = read(section("dcgm", *four.splitlines(), status=226))
    assert (facts.dcgm, facts.dcgm_error) == ((DcgmFailure("memory", "1", 2, "bad page"),), "")
    old = {"gpu_ids": "0,1", "status": "FAIL", "warnings": "bad page"}
    three = read(section("dcgm", diagnostic("DCGM GPU Diagnostic", old), status=226))
    assert three.dcgm == (DcgmFailure("memory", "0,1", 0, "bad page"),)


def test_a_diagnostic_without_a_result() -> None:
    facts = read(section("dcgm", "Error: unable to establish a connection", status=255))
    assert facts.dcgm_error == "dcgmi ended with 255: Error: unable to establish a connection"
    assert read(section("dcgm", '{"DCGM Diagnostic": []}')).dcgm_error != ""
    assert read("").dcgm_error == ""


TABLE = (
    "#       size  count  type  redop  root  time  algbw  busbw  #wrong",
    "    65536  16384  float  sum  -1  40.1  1.63  2.86  0  39.9  1.64  2.87  0",
    "# Out of bounds values : 0 OK",
    "# Avg bus bandwidth    : 12.7 ",
)


@pytest.mark.parametrize(
    ("lines", "status", "expected"),
    [
        (TABLE, 0, Loopback(12.7)),
        (
            (*TABLE[:2], "# Out of bounds values : 3 FAILED", TABLE[3]),
            1,
            Loopback(0, "3 wrong values"),
        ),
        (("mpirun: not found",), 127, Loopback(0, "ended with 127: mpirun: not found")),
        (TABLE[:2], 0, Loopback(0, f"ended with 0: {TABLE[1].strip()}")),
    ],
)
def test_the_loopback(lines: tuple[str, ...], status: int, expected: Loopback) -> None:
    assert read(section("loopback", *lines, status=status)).loopback == expected


def test_a_section_that_did_not_end_is_none() -> None:
    assert read(answer().rpartition("=== exit")[0]).took == 0.0
    assert read("=== gpus\n0, x, y, z, Enabled, 0\n") == NodeFacts()


_LINES = st.one_of(
    st.text(alphabet=string.printable, max_size=60),
    st.sampled_from([line for lines in PARTS.values() for line in lines]),
    st.sampled_from(["=== exit 0", "=== exit 124", "=== exit", *(f"=== {name}" for name in PARTS)]),
)


@given(st.lists(_LINES, max_size=40))
def test_any_text_gives_facts(lines: list[str]) -> None:
    facts = read("\n".join(lines))
    assert all(gpu.index >= 0 for gpu in facts.gpus or ())
    assert all(disk.free_inodes <= 100 for disk in facts.disks)
    assert facts.took >= 0


@given(st.text(max_size=300))
def test_noise_before_and_between_sections_changes_nothing(noise: str) -> None:
    clean = "\n".join(line for line in noise.splitlines() if not line.startswith("=== "))
    sections = [section(name, *lines) for name, lines in PARTS.items()]
    assert read(f"{clean}\n" + f"{clean}\n".join(sections)) == read(answer())
