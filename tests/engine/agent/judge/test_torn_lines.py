"""Lines that several processes tear: no fault may follow from one that is not whole.

NCCL writes to stdout without a lock between processes; stdio hands a pipe 4096 bytes at a time.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.agent.judge.failures import Finding
from engine.agent.judge.output_checks import Judge
from engine.contract.plan import NetworkPlan
from engine.contract.verdict import Verdict
from tests.engine.bare_events import findings, printed
from tests.engine.bare_plans import bare_node, bare_plan

pytestmark = pytest.mark.slow

PROCESSES = 8
BLOCK = 4096
NODES = [bare_node(rank, f"10.0.0.{rank + 5}") for rank in range(2)]
TABLE = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 \
agg iters: 1 validation: 1 graph: 0
#       size         count      type   redop    root     time   algbw   busbw #wrong     time
"""


def process_log(number: int, gdr: str = "/GDRDMA", nics: int = 32) -> str:
    """What one process of a good run on EFA prints; the first one prints the table too."""
    host, pid = f"ip-10-0-0-{5 + number % 2}", 4100 * (1 + number // 6) + number
    say = f"{host}:{pid}:{pid + 77} [{number // 2}] NCCL INFO "
    lines = [
        f"{say}NET/OFI Initializing aws-ofi-nccl 1.17.1",
        f"{say}NET/OFI Selected provider is efa, fabric is efa-direct (found {nics} nics)",
        f"{say}Using network Libfabric",
    ]
    for channel in range(60):
        way = f"{number}[{number}] -> {(number + 1) % 8}[{number}]"
        device = channel % 32
        lines.append(f"{say}Channel {channel:02}/0 : {way} [send] via NET/Libfabric/{device}{gdr}")
        lines.append(
            f"{say}Channel {channel:02}/0 : {way} [receive] via NET/Libfabric/{device}{gdr}"
        )
    if number == 0:
        lines += TABLE.splitlines()
        for power in range(18):
            size = 8 << power
            half = f"  {51.25:>7.2f}  {size / 51250:>6.2f}  {size / 51250:>6.2f}  {0:>5}"
            lines.append(f"{size:>12}  {size // 4:>12}     float     sum      -1{half}{half}")
        lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 3.14 "]
    lines.append(f"{say}comm 0x7f Destroy COMPLETE")
    return "\n".join(lines) + "\n"


def judged(text: str, **network: Any) -> tuple[list[Finding], Verdict]:
    promised = {"verify": "require", "promises": "efa", "interfaces": 32, "gpudirect": True}
    judge = Judge(bare_plan(NODES, NetworkPlan(**{**promised, **network})))
    lines = text.split("\n")
    heard = []
    for number, line in enumerate(lines):
        ends = number < len(lines) - 1
        heard += judge.hear(printed(line, ends_line=ends))
    more, verdict = judge.end(Verdict("done", 0, None, "the master is done"))
    return findings(heard + more), verdict


def assert_good(text: str) -> None:
    findings, verdict = judged(text)
    assert verdict.status == "done", verdict.reason
    assert {
        one.text.removesuffix(": 32 interfaces") for one in findings if one.level == "proof"
    } == {f"{node.name} uses {what}" for node in NODES for what in ("EFA", "GPUDirect RDMA")}
    # Rows that were torn are found again, or reported as lost.
    assert all(
        one.text.endswith("other output went through them")
        for one in findings
        if one.level == "warning"
    )


def interleaved(logs: list[str], seed: int, block: int = BLOCK) -> str:
    """Blocks of all logs in a random order, each log's own in theirs."""
    chance = random.Random(seed)
    blocks = [[log[at : at + block] for at in range(0, len(log), block)] for log in logs]
    text = []
    while waiting := [one for one in blocks if one]:
        text.append(chance.choice(waiting).pop(0))
    return "".join(text)


def test_a_good_log_is_good() -> None:
    assert_good("".join(map(process_log, range(PROCESSES))))


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.sampled_from([BLOCK, 512, 1000, 4095]))
def test_no_order_of_blocks_makes_a_fault(seed: int, block: int) -> None:
    assert_good(interleaved([process_log(number) for number in range(PROCESSES)], seed, block))


_WRITER = """
import os, sys
data = sys.stdin.buffer.read()
for at in range(0, len(data), 4096):
    os.write(1, data[at : at + 4096])
"""


def written_by_processes() -> str:
    """What comes out of one pipe into which eight processes write at the same time."""
    read_end, write_end = os.pipe()
    writers = []
    for _ in range(PROCESSES):
        writers.append(
            subprocess.Popen([sys.executable, "-ISc", _WRITER], stdin=-1, stdout=write_end)
        )
    os.close(write_end)
    for number, writer in enumerate(writers):
        assert writer.stdin is not None
        writer.stdin.write(process_log(number).encode())
    for writer in writers:  # each begins at the end of its input: all at once
        assert writer.stdin is not None
        writer.stdin.close()
    with os.fdopen(read_end, encoding="utf-8") as pipe:
        text = pipe.read()
    for writer in writers:
        assert writer.wait() == 0
    return text


def test_real_writers_into_one_pipe_make_no_fault() -> None:
    for _ in range(3):
        assert_good(written_by_processes())


def _cuts(log: str, places: Iterator[int] | list[int]) -> list[str]:
    begin, parts = 0, []
    for place in places:
        parts.append(log[begin:place])
        begin = place
    return [*parts, log[begin:]]


@pytest.mark.parametrize("cut", ["/GDRDMA", "nics)"])
def test_the_worst_cut_makes_no_fault(cut: str) -> None:
    """One process is cut before `/GDRDMA`, another before the end of its line: a whole fallback."""
    first, second = process_log(0), process_log(1)
    place = first.index(cut, first.index("Channel 00" if cut == "/GDRDMA" else "Selected"))
    end = second.index("\n", second.index("Channel 00" if cut == "/GDRDMA" else "Selected"))
    parts, others = _cuts(first, [place]), _cuts(second, [end])
    rest = "".join(map(process_log, range(2, PROCESSES)))
    assert_good(others[0] + parts[0] + others[1] + parts[1] + rest)


def test_what_really_lacks_it_is_a_fault_though_lines_are_torn() -> None:
    for seed in range(20):
        logs = [process_log(number, gdr="" if number % 2 else "/GDRDMA") for number in range(8)]
        findings, _ = judged(interleaved(logs, seed))
        (fault,) = [one for one in findings if one.level == "fault"]
        assert fault.text.startswith(
            "node1 transfers data through the host's memory, without GPUDirect RDMA"
        )
        few = [process_log(number, nics=16 if number % 2 else 32) for number in range(8)]
        findings, _ = judged(interleaved(few, seed))
        (fault,) = [one for one in findings if one.level == "fault"]
        assert fault.text.startswith("node1 uses 16 of 32 EFA interfaces")
