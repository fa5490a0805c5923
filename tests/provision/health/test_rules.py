"""Each rule: what it finds, with its severity; and that good nodes have no finding."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import GpuctlError, NodeError
from provision.health import rules
from provision.health.facts import DcgmFailure, Disk, Loopback, NodeFacts, RemappedRows, read
from provision.health.judge import findings, offset
from provision.health.model import SEVERITIES, AllFacts, Rule, Severity
from provision.health.rules import DEEP_RULES, RULES
from tests.provision.health.examples import ADDRESSES, GOOD, P4D, answer, found, section, texts

XID = "NVRM: Xid (PCI:0000:64:00): {}, pid='<unknown>', name=<unknown>, {}"
HOME = Path(__file__).parents[3]
CHECKS = HOME / "provision/setup/software/steps/checks.sh"


def gpus(**changes: Any) -> Any:
    assert GOOD.gpus is not None
    return (replace(GOOD.gpus[0], **changes), *GOOD.gpus[1:])


def test_good_nodes_have_no_finding() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gpus": (GOOD.gpus or ())[:7]}, ["isolate node1 GPUs: expected 8, actual 7"]),
        (
            {"gpus": (), "smi_error": "No devices were found"},
            ["isolate node1 GPUs: expected 8, actual No devices were found"],
        ),
        (
            {"gpus": (), "smi_error": "Failed to initialize NVML: Driver/library version mismatch"},
            [
                "isolate node1 NVIDIA driver: expected the version of its libraries,"
                " actual Failed to initialize NVML: Driver/library version mismatch"
            ],
        ),
        (
            {"gpus": gpus(name="NVIDIA H100 80GB HBM3")},
            ["isolate node1 model of the GPUs: expected A100, actual NVIDIA H100 80GB HBM3"],
        ),
        (
            {"checks": {"GPUs that DCGM finds": ("8", "7")}},
            ["isolate node1 GPUs that DCGM finds: expected 8, actual 7"],
        ),
        (
            {"checks": {"NVIDIA driver branch": ("580", "595")}},
            ["isolate node1 NVIDIA driver branch: expected 580, actual 595"],
        ),
        (
            {"checks": {"fabric manager": ("active", "failed")}},
            ["reboot node1 fabric manager: expected active, actual failed"],
        ),
        (
            {"gpus": gpus(ecc=3)},
            ["reset node1 uncorrectable ECC errors of GPU 0: expected 0, actual 3"],
        ),
        ({"gpus": gpus(ecc=None)}, []),
        (
            {"gpus": gpus(is_persistent=False)},
            ["watch node1 persistence mode: expected enabled, actual disabled on 1 of 8 GPUs"],
        ),
        (
            {"remapped": (RemappedRows("0:1", 1, True, True), RemappedRows("0:2", 1, True, False))},
            [
                "isolate node1 row remapping of 0:1: expected no failure, actual failed",
                "reset node1 row remapping of 0:2: expected nothing pending, actual pending",
            ],
        ),
        (
            {"remapped": (RemappedRows("0:1", 2, False, False),)},
            [
                "watch node1 row remapping of 0:1: expected 0 rows, actual 2 rows remapped after"
                " uncorrectable errors"
            ],
        ),
        ({"nvlinks": {0: 12, 1: 11}}, ["reset node1 NVLinks of GPU 1: expected 12 up, actual 11"]),
        (
            {
                "kernel_log": (
                    XID.format(31, "MMU Fault"),
                    XID.format(79, "GPU has fallen off the bus."),
                )
            },
            [
                "reboot node1 kernel log of 0000:64:00: expected no error, actual Xid 79, the GPU"
                " has fallen off the bus",
                "watch node1 kernel log of 0000:64:00: expected no error, actual Xid 31, memory"
                " page fault of the GPU",
            ],
        ),
        (
            {"slowdowns": {3: ("hardware", "hardware, temperature")}},
            [
                "watch node1 slowdown of GPU 3: expected none, actual hardware; hardware,"
                " temperature"
            ],
        ),
        (
            {"checks": {"EFA devices": ("4", "3")}, "efa": 3},
            ["isolate node1 EFA devices: expected 4, actual 3"],
        ),
        ({"checks": None, "efa": 3}, ["isolate node1 EFA devices: expected 4, actual 3"]),
        ({"checks": None, "efa": 0}, []),  # the lab's machines, and containers
        (
            {"p2p": ("NVIDIA", "", "NVIDIA", "NVIDIA")},
            [
                "reboot node1 GPUDirect RDMA: expected peer memory on every EFA device, actual 1"
                " of 4 EFA devices without it"
            ],
        ),
        (
            {"p2p": None, "hmem": 0},
            [
                "watch node1 GPUDirect RDMA: expected 4 EFA devices with GPU memory, actual"
                " libfabric finds 0"
            ],
        ),
        ({"p2p": None, "hmem": 4}, []),
        (
            {"memlock_kib": 8192.0},
            ["watch node1 locked memory: expected unlimited, or 16 GiB, actual 8 MiB"],
        ),
        ({"memlock_kib": 16.0 * 1024 * 1024}, []),
        (
            {"checks": {"Open MPI": ("4 or 5", ""), "checks on the node": ("an end", "127")}},
            [
                "isolate node1 Open MPI: expected 4 or 5, actual ",
                "isolate node1 checks on the node: expected an end, actual 127",
            ],
        ),
        (
            {"checks": {"/scratch": ("mounted", "nothing")}},
            ["reboot node1 /scratch: expected mounted, actual nothing"],
        ),
        (
            {"names": {"node0": "10.213.1.10", "node1": "127.0.1.1"}},
            [
                "isolate node1 address of node1: expected 10.213.1.11, actual 127.0.1.1",
                "isolate node1 address of node2: expected 10.213.1.12, actual nothing",
            ],
        ),
        (
            {"disks": (Disk("/", 300_000_000, 1_500_000), Disk("/tmp", 300_000_000, 1000, 0))},
            [
                "isolate node1 free space in /tmp: expected 2048 MiB, actual 0 MiB of 292968 MiB",
                "isolate node1 free inodes in /tmp: expected 1 %, actual less",
                "watch node1 free space in /: expected 2048 MiB, actual 1464 MiB of 292968 MiB",
            ],
        ),
        ({"disks": (Disk("/dev/shm", 65536, 65536),)}, []),
        (
            {"ended": ("remap",)},
            ["reboot node1 facts about remapped rows: expected an answer in time, actual none"],
        ),
    ],
)
def test_a_deviation_is_found(changes: dict[str, Any], expected: list[str]) -> None:
    assert texts(found(**changes)) == expected


def test_a_stale_driver_among_three_and_among_two() -> None:
    stale = tuple(replace(gpu, driver="580.95.05") for gpu in GOOD.gpus or ())
    wanted = (
        "isolate node{} version of NVIDIA driver: expected 595.91.07 as on the others, actual"
        " 580.95.05, alone among {} nodes"
    )
    assert texts(found(gpus=stale)) == [wanted.format(1, 3)]
    two = {"node0": replace(GOOD, gpus=stale), "node1": GOOD}
    assert texts(list(findings(AllFacts(P4D, two)))) == [wanted.format(0, 2)]


def test_another_kernel_is_only_for_watching() -> None:
    versions = GOOD.versions | {"kernel": "6.17.0-1001-aws"}
    assert [one.severity for one in found(versions=versions)] == ["watch"]


def clocks(**offsets: float) -> list[str]:
    answers = dict.fromkeys(offsets, GOOD)
    return texts(list(findings(AllFacts(P4D, answers, offsets))))


def test_a_clock_that_is_off() -> None:
    ahead = "reboot node1 clock: expected within 1 s of the others, actual 300 s ahead"
    assert clocks(node0=0.0, node1=300.0, node2=0.1) == [ahead]
    assert clocks(node0=0.0, node1=300.0) == [ahead]
    assert clocks(node1=300.0) == [ahead]
    assert clocks(node0=0.0, node1=-5.0) == [
        "watch node1 clock: expected within 1 s of the others, actual 5 s behind"
    ]


def test_this_machines_clock_that_is_off_is_not_the_nodes_fault() -> None:
    assert clocks(node0=300.0, node1=300.2, node2=299.9) == []


@given(st.floats(0, 1e6), st.floats(0, 100), st.floats(0, 1), st.floats(-1e4, 1e4))
def test_a_right_clock_is_never_off(sent: float, delay: float, part: float, off: float) -> None:
    """Wherever the node read its clock within the question, what is reported is at most true."""
    took = delay * part
    read_at = sent + (delay - took) * part
    facts = replace(GOOD, clock=read_at + off, took=took)
    reported = offset(sent, sent + delay, facts)
    assert abs(reported) <= abs(off) + 1e-6
    assert reported == 0 or (reported > 0) == (off > 0)
    assert abs(reported - off) <= delay - took + 1e-6


def test_a_node_that_does_not_answer_has_one_finding() -> None:
    lost = NodeError("node1 (10.213.1.11) is lost", "wait")
    answers: dict[str, NodeFacts | GpuctlError] = {"node0": GOOD, "node1": lost}
    (one,) = findings(AllFacts(P4D, answers))
    assert (one.rule, one.severity) == ("reachable", "reboot")
    assert one.text == "answer by ssh: expected facts, actual node1 (10.213.1.11) is lost"


def test_a_node_that_the_head_does_not_reach() -> None:
    facts = AllFacts(P4D, dict.fromkeys(ADDRESSES, GOOD), unreached={"node2": "ssh: timed out"})
    assert texts(list(findings(facts))) == [
        "isolate node2 ssh from the head: expected a login, actual ssh: timed out"
    ]


def test_a_type_without_gpus_and_efa_needs_neither() -> None:
    of_gpus = ("gpus", "efa", "gpudirect", "nvlink", "remap", "throttle")
    facts = replace(read(answer(dict.fromkeys(of_gpus))), memlock_kib=64.0)
    bare = replace(P4D, gpus=0, model="", nvlinks=0, efa=0, has_gpudirect=False)
    assert findings(AllFacts(bare, dict.fromkeys(ADDRESSES, facts))) == ()


def deep(**changes: Any) -> list[str]:
    slow = changes.pop("slow", {})
    facts = {name: replace(GOOD, loopback=Loopback(40.0)) for name in ADDRESSES}
    facts["node1"] = replace(facts["node1"], **changes)
    return texts(list(findings(AllFacts(P4D, facts, slow=slow), DEEP_RULES)))


def test_deep_checks() -> None:
    assert deep() == []
    failures = (DcgmFailure("memory", "1", 2, "bad page"), DcgmFailure("software", "0", 5, "mode"))
    assert deep(dcgm=failures) == [
        "isolate node1 DCGM's memory on GPU 1: expected passed, actual bad page",
        "watch node1 DCGM's software on GPU 0: expected passed, actual mode",
    ]
    assert deep(dcgm_error="dcgmi ended with 127: not found") == [
        "isolate node1 DCGM's diagnostic: expected a result, actual dcgmi ended with 127: not found"
    ]
    loopback = "node1 all_reduce over the network of one node: expected"
    assert deep(loopback=Loopback(0.0, "3 wrong values")) == [
        f"isolate {loopback} no wrong value, actual 3 wrong values"
    ]
    assert deep(loopback=Loopback(15.0)) == [f"watch {loopback} 40 GB/s, actual 15 GB/s"]
    assert deep(slow={"node1": "41 % below the median"}) == [
        "isolate node1 speed: expected that of the others, actual 41 % below the median"
    ]


def test_every_check_on_the_node_belongs_to_one_rule() -> None:
    text = CHECKS.read_text()
    names = {one.strip("'") for one in re.findall(r"gpuctl_check ('[^']+'|\w\S*) ", text)}
    assert "GPUs" in names and "NCCL plugin for EFA" in names and len(names) >= 11
    for name in names - {"GPUs"}:  # nvidia-smi's own answer has them
        lines = section("verify", f"failed: {name}: expected x, actual y", status=1)
        facts = replace(GOOD, checks=read(lines).checks)
        assert len(findings(AllFacts(P4D, {"node1": facts}))) == 1, name


def test_the_table_is_whole() -> None:
    assert get_args(Severity) == SEVERITIES
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in (*RULES, *DEEP_RULES):
        assert all((rule.reads, rule.expects, rule.remedy, rule.source)), rule.id
    defined = {
        rule
        for module in (rules.gpus, rules.network, rules.system)
        for rule in vars(module).values()
        if isinstance(rule, Rule)
    }
    assert defined == {*RULES, *DEEP_RULES}
