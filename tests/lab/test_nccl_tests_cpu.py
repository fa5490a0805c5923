"""The stand-in runs where it lives: on two machines of the lab, built into their image."""

import re
from pathlib import Path

import pytest

from tests.lab.conftest import Boot, Booted

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

NUMBER = r"\s+[0-9.]+"
WRONG = r"\s+(?P<wrong{}>[0-9]+|N/A)"
ROW = re.compile(
    r"\s+(?P<size>[0-9]+)\s+(?P<count>[0-9]+)\s+float\s+(?P<redop>sum|none)\s+(?P<root>-1|0)"
    + NUMBER * 3
    + WRONG.format(1)
    + NUMBER * 3
    + WRONG.format(2)
)
MPIRUN = "cd /root/nccl-tests/build && mpirun --allow-run-as-root"


@pytest.fixture(scope="module")
def head(boot: Boot, key: Path) -> Booted:
    """The first of two machines; root on it reaches both by ssh."""
    pair = [boot("dlami", "10.213.0.4"), boot("dlami", "10.213.0.5")]
    for node in pair:
        node.wait()
    done = pair[0].ssh("umask 077; cat > /root/.ssh/id_ed25519", stdin=key.read_text())
    assert done.returncode == 0
    return pair[0]


def test_sixteen_ranks_on_two_machines_as_the_task_file_has_it(head: Booted) -> None:
    hostfile = "printf '10.213.0.4 slots=8\\n10.213.0.5 slots=8\\n' > hostfile"
    shown = head.output(
        f"cd /root/nccl-tests/build && {hostfile}; {MPIRUN} --hostfile hostfile -n 16 -N 8"
        " --mca btl_tcp_if_exclude lo,docker0 --bind-to none"
        " ./all_reduce_perf -b 8 -e 8G -f 2 -g 1"
    )
    lines = shown.splitlines()
    assert lines[0] == (
        "# CPU stand-in for nccl-tests' all_reduce_perf: MPI on host memory."
        " No GPU and no NCCL is involved;"
    )
    assert (
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5"
        " iters: 20 agg iters: 1 validation: 1 graph: 0"
    ) in lines
    devices = re.findall(
        r"^#  Rank ([ 0-9]{2}) Group  0 Pid +[0-9]+ on (ip-\S+) device +([0-9]) \[0x00\] "
        r"CPU stand-in$",
        shown,
        re.MULTILINE,
    )
    assert [(int(rank), host, int(device)) for rank, host, device in devices] == [
        (8 * node + device, f"ip-10-213-0-{4 + node}", device)
        for node in range(2)
        for device in range(8)
    ]
    rows = [match for line in lines if (match := ROW.fullmatch(line))]
    assert [int(row["size"]) for row in rows] == [2**power for power in range(3, 24)]
    assert {(row["wrong1"], row["wrong2"]) for row in rows} == {("0", "0")}
    skipped = [line for line in lines if "skipped" in line]
    assert len(skipped) == 10
    assert skipped[0] == (
        "# size 16777216 skipped: a buffer holds at most 8388608 bytes here"
        " (/etc/gpuctl-lab/nccl-tests-cpu.conf, memory for 8 ranks on a machine)"
    )
    assert lines[-3] == "# Out of bounds values : 0 OK"
    assert re.fullmatch(r"# Avg bus bandwidth    : [0-9.e-]+ ", lines[-2])


def test_the_table_is_nccl_tests(head: Booted) -> None:
    """Column by column as nccl-tests 2.13 to 2.17.2 print it."""
    shown = head.output(f"{MPIRUN} -n 2 --oversubscribe ./all_reduce_perf -b 1K -e 1K -n 1 -w 0")
    assert (
        "#\n"
        "#                                                              out-of-place"
        "                       in-place          \n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
        "     time   algbw   busbw #wrong\n"
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
        "     (us)  (GB/s)  (GB/s)       \n"
        "        1024           256     float     sum      -1"
    ) in shown


# Per collective, of 4096 bytes on four ranks: size, count, redop, root, and in place's #wrong.
# Parts are aligned to 16 bytes; nccl-tests does not check alltoall and sendrecv in place.
@pytest.mark.parametrize(
    ("name", "count", "redop", "root", "in_place"),
    [
        ("all_reduce_perf", 1024, "sum", "-1", "0"),
        ("all_gather_perf", 256, "none", "-1", "0"),
        ("alltoall_perf", 256, "none", "-1", "N/A"),
        ("broadcast_perf", 1024, "none", "0", "0"),
        ("gather_perf", 256, "none", "0", "0"),
        ("reduce_perf", 1024, "sum", "0", "0"),
        ("reduce_scatter_perf", 256, "sum", "-1", "0"),
        ("scatter_perf", 256, "none", "0", "0"),
        ("sendrecv_perf", 1024, "sum", "-1", "N/A"),
    ],
)
def test_every_collective_moves_the_right_data(
    head: Booted, name: str, count: int, redop: str, root: str, in_place: str
) -> None:
    run = f"{MPIRUN} -n 4 --oversubscribe ./{name} -b 4K -e 4K -n 3 -w 1"
    (row,) = _rows(head.output(run))
    assert row.groupdict() == {
        "size": "4096",
        "count": str(count),
        "redop": redop,
        "root": root,
        "wrong1": "0",
        "wrong2": in_place,
    }
    broken = head.ssh(run.replace("mpirun", "NCCL_TESTS_CPU_CORRUPT=0 mpirun"))
    assert broken.returncode != 0
    (row,) = _rows(broken.stdout)
    assert row["wrong1"] == "1"
    assert row["wrong2"] == in_place.replace("0", "1")
    results = 1 if in_place == "N/A" else 2
    assert f"# Out of bounds values : {results} FAILED" in broken.stdout


def test_bus_bandwidth_is_nccl_tests_factor_of_the_algorithms(head: Booted) -> None:
    """doc/PERFORMANCE.md: all_reduce 2(n-1)/n, which is 1.5 on four ranks."""
    run = f"{MPIRUN} -n 4 --oversubscribe ./all_reduce_perf -b 4M -e 4M -n 3 -w 1"
    (row,) = _rows(head.output(run))
    time_us, algbw, busbw = (float(word) for word in row[0].split()[5:8])
    assert algbw == pytest.approx(4194304 / time_us / 1e3, abs=0.006)
    assert busbw == pytest.approx(1.5 * algbw, abs=0.016)


def test_sizes_step_by_bytes_and_checks_can_be_off(head: Booted) -> None:
    rows = _rows(head.output(f"{MPIRUN} -n 1 ./all_reduce_perf -b 1K -e 3K -i 1K -c 0 -n 1"))
    assert [(row["size"], row["wrong1"], row["wrong2"]) for row in rows] == [
        ("1024", "N/A", "N/A"),
        ("2048", "N/A", "N/A"),
        ("3072", "N/A", "N/A"),
    ]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("-Q 1", "./all_reduce_perf: invalid option -- 'Q'"),
        ("-b eight", "invalid value for -b: eight"),
        ("-g 2", "-g 2: a process of this CPU stand-in is one rank; use -g 1"),
        ("-b 8 -e 4", "invalid sizes for 'minbytes' and 'maxbytes': 8 > 4, or no step"),
        ("8", "unexpected argument: 8"),
    ],
)
def test_bad_flags_are_refused(head: Booted, flags: str, complaint: str) -> None:
    done = head.ssh(f"cd /root/nccl-tests/build && ./all_reduce_perf {flags}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == complaint
    assert done.stdout == ""


def _rows(shown: str) -> list[re.Match[str]]:
    return [match for line in shown.splitlines() if (match := ROW.fullmatch(line))]
