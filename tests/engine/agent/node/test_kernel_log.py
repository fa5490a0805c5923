"""What the kernel's log says: kills for memory, crashes, errors of GPUs, each with its remedy."""

from pathlib import Path

import pytest

from config import xid
from engine.agent.judge import kernel_messages
from engine.agent.judge.kernel_messages import Crash, Kill
from engine.agent.node.kernel_log import KernelLog
from engine.agent.node.node_facts import gpu_facts, memory_facts, size_text
from engine.contract.worker_events import NodeFact

# Of Linux 6.18, of this project's machine (2026-11-23); the second kill as mm/oom_kill.c prints it.
UNIT = "/system.slice/gpuctl-run-a-1.service"
LIMIT = [
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    f"oom_memcg={UNIT},task_memcg={UNIT}/job,task=python3,pid=15760,uid=0",
    "Memory cgroup out of memory: Killed process 15760 (python3) total-vm:323756kB,"
    " anon-rss:61056kB, file-rss:6648kB, shmem-rss:0kB, UID:0 pgtables:184kB oom_score_adj:0",
]
MACHINE = [
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    f"task_memcg={UNIT},task=python3,pid=4711,uid=0",
    "Out of memory: Killed process 4711 (python3) total-vm:70000000kB, anon-rss:66270001kB,"
    " file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:184kB oom_score_adj:0",
]
SEGFAULT = (
    "python3[15650]: segfault at 0 ip 00007f41ad985ad8 sp 00007ffd6b8874d8 error 4 in"
    " libc.so.6[167ad8,7f41ad844000+156000] likely on CPU 0 (core 0, socket 0)"
)


def test_kills_are_those_of_the_unit_or_of_others() -> None:
    assert kernel_messages.kills(LIMIT) == [
        Kill("python3", 15760, (61056 + 6648) * 1024, f"{UNIT}/job", is_limit=True)
    ]
    assert memory_facts(MACHINE, [UNIT], 1) == [
        NodeFact(
            "memory", "the kernel killed python3 (pid 4711, 63.2 GiB) because memory was short"
        )
    ]
    (other,) = memory_facts(LIMIT, ["/system.slice/gpuctl-run-a-1"], 0)
    assert other == NodeFact(
        "others-memory",
        "the kernel killed python3 (pid 15760, 66.1 MiB) because its memory limit was reached",
    )


@pytest.mark.parametrize(("count", "words"), [(1, "a process"), (3, "3 processes")])
def test_a_count_is_all_that_is_known_without_a_log(count: int, words: str) -> None:
    (fact,) = memory_facts([], [UNIT], count)
    assert fact.text == f"the kernel killed {words} of the job because memory was short"


def test_crashes_of_all_kinds() -> None:
    general = "traps: a b[7] general protection fault ip:55 sp:7f error:0 in train[4000+2000]"
    opcode = "traps: train[8] trap invalid opcode ip:5590 sp:7ffc error:0"
    jump = "train[9]: segfault at 0 ip 00000 sp 00007f error 14 likely on CPU 0 (core 0)"
    assert kernel_messages.crashes([SEGFAULT, general, opcode, jump, *LIMIT]) == [
        Crash("python3", 15650, "segfault", "libc.so.6"),
        Crash("a b", 7, "general protection fault", "train"),
        Crash("train", 8, "invalid opcode", ""),
        Crash("train", 9, "segfault", ""),
    ]


def test_errors_of_gpus_are_named_with_remedy_the_gravest_first() -> None:
    lines = [
        "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping",
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9).",
        "NVRM: Xid (PCI:0000:2b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off",
        "NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress",
    ]
    first, second, third = gpu_facts(lines)
    assert first == NodeFact(
        "gpu",
        "Xid 79 on 0000:2b:00: the GPU has fallen off the bus; reboot the node; if the"
        " error comes again, terminate the instance and repeat `gpuctl up`",
    )
    assert second.text.startswith("SXid 12028 on 0000:c1:00.0: error of an NVSwitch; reset")
    assert (third.kind, third.text[:25]) == ("gpu-notice", "Xid 94 on 0000:01:00: con")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("154, GPU recovery action changed from 0x0 to 0x2 (Node Reboot Required)", "reboot"),
        ("154, GPU recovery action changed from 0x0 to 0x1 (GPU Reset Required)", "reset"),
        ("154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)", "reboot"),
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)", "reset"),
        ("154, GPU recovery action changed from 0x1 to 0x0 (None)", "watch"),
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "reset"),
        ("154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", "watch"),
        ("154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x4 (Drain and"
         " Reset)", "reset"),
        ("999, something new", "program"),
    ],
)  # fmt: skip
def test_the_text_of_xid_154_is_its_action(text: str, action: str) -> None:
    (error,) = xid.gpu_errors([f"NVRM: Xid (PCI:0000:2b:00): {text}"])
    assert error.xid.action == action


def test_each_xid_has_the_action_of_nvidias_catalogue_or_of_its_reader() -> None:
    actions: dict[str, set[int]] = {}
    for number, entry in xid.XIDS.items():
        assert entry.remedy
        actions.setdefault(entry.action, set()).add(number)
    assert actions["replace"] == {54, 64}
    assert actions["reboot"] == {79, 95, 151, 168}
    resets = {46, 48, 62, 74, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 159}
    assert actions["reset"] == resets
    assert actions["program"] == {8, 13, 31, 32, 43, 94, 126, 137}
    asks_for_reset = {n for n, entry in xid.XIDS.items() if entry.bucket == "RESET_GPU"}
    assert asks_for_reset - resets == {64, 95}  # graver, on AWS


def test_the_log_begins_when_it_is_opened_and_skips_dictionaries(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("6,1,100,-;before\n")
    log = KernelLog(str(path))
    with path.open("a") as file:
        file.write("3,2,200,-;first\n SUBSYSTEM=pci\n6,3,300,-,caller=T7;second; and more\n")
    assert log.lines() == ["first", "second; and more"]
    assert log.lines() == []
    log.close()
    assert log.lines() == []


def test_no_log_is_an_empty_one(tmp_path: Path) -> None:
    assert KernelLog(str(tmp_path / "none")).lines() == []


@pytest.mark.parametrize(
    ("size", "text"),
    [(1023, "1023 B"), (1024, "1.0 KiB"), (60 << 20, "60.0 MiB"), (3 << 40, "3072.0 GiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text
