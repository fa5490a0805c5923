"""What NVIDIA's tools print, and the tools kept open. The stand-ins print what the tools do."""

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

from engine.agent.metrics.gpu_counters import Gpus, dcgm_row, gpu_row, nvlink_bytes

NVLINK = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)
\t Link 0: Data Tx: 12345 KiB
\t Link 0: Data Rx: 2048 KiB
\t Link 1: Data Tx: 5 KiB
\t Link 1: Data Rx: 1 KiB
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb)
\t Link 0: Data Tx: 7 KiB
\t Link 0: Data Rx: 9 KiB
"""


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("0, 97, 65012, 81559, 640.12, 55, 0, 2", (0, [97, 65012, 81559, 640.12, 55, 0, 2])),
        ("7, 0, 0, 23028, [N/A], 31, [N/A], N/A", (7, [0, 0, 23028, None, 31, None, None])),
        (
            "1, [Unknown Error], 1, 2, [GPU requires reset], 3, 4, [Not Supported]",
            (1, [None, 1, 2, None, 3, 4, None]),
        ),
        ('Field "x" is not a valid field to query.', None),
        ("Unable to determine the device handle for GPU0000:53:00.0: GPU is lost.", None),
        ("", None),
        ("0, 97", None),
    ],
)
def test_a_line_of_nvidia_smi(line: str, row: object) -> None:
    assert gpu_row(line) == row


def test_nvlinks_counters() -> None:
    assert nvlink_bytes(NVLINK) == {0: [12350 << 10, 2049 << 10], 1: [7 << 10, 9 << 10]}
    assert nvlink_bytes("GPU 0: Tesla V100 (UUID: GPU-a)\n\t Link 0: Data Tx: N/A\n") == {}
    assert nvlink_bytes("No devices were found\n") == {}


def test_a_line_of_dcgm() -> None:
    assert dcgm_row("GPU 0     144419184248     144423560785   ") == (
        0,
        [144419184248, 144423560785],
    )
    assert dcgm_row("GPU 0     N/A                         N/A") is None
    assert dcgm_row("#Entity   NVLTX                       NVLRX") is None


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, for stand-ins."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/bash\n{script}")
    path.chmod(0o755)


def rows_of(gpus: Gpus, count: int) -> list[list[float | None]]:
    """The rows, once so many values of NVLink are known."""
    deadline = time.monotonic() + 20
    while sum(row[8] is not None for row in gpus.read()) < count or not gpus.read():
        assert time.monotonic() < deadline, gpus.read()
        time.sleep(0.02)
    return gpus.read()


def test_the_tools_are_kept_open(tools: Path) -> None:
    write(
        tools / "nvidia-smi",
        f'case "$1" in\nnvlink) echo "{NVLINK}";;\n'
        '--query-gpu=*) echo "$@" > "${0%/*}/asked"\n'
        "printf '0, 90, 10, 80, 300.5, 50, 0, 0\\n1, 0, 1, 80, 60, 30, 1, 0\\n'\n"
        "exec /bin/sleep 60;;\nesac\n",
    )
    gpus = Gpus()
    gpus.start()
    try:
        assert rows_of(gpus, 2) == [
            [0, 90, 10, 80, 300.5, 50, 0, 0, 12350 << 10, 2049 << 10],
            [1, 0, 1, 80, 60, 30, 1, 0, 7 << 10, 9 << 10],
        ]
        assert gpus.sources == ["nvidia-smi", "nvidia-smi nvlink"]
        assert (tools / "asked").read_text() == (
            "--query-gpu=index,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu,"
            "ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total"
            " --format=csv,noheader,nounits --loop=5\n"
        )
        (tool,) = gpus._tools
    finally:
        gpus.stop()
    assert tool.wait(60) == -9  # nobody waits for it but this test


def test_dcgm_counts_where_nvidia_smi_does_not(tools: Path) -> None:
    write(
        tools / "nvidia-smi",
        "test \"$1\" = nvlink && exit 3\nprintf '0, 90, 10, 80, 300.5, 50, 0, 0\\n'\n"
        "exec /bin/sleep 60\n",
    )
    write(
        tools / "dcgmi",
        "echo '#Entity   NVLTX  NVLRX'; echo 'ID'; echo 'GPU 0     N/A     N/A'\n"
        "echo 'GPU 0     100     20'; echo 'GPU 0     200     40'\n",
    )
    gpus = Gpus()
    gpus.start()
    try:
        deadline = time.monotonic() + 20
        while [row[8:] for row in gpus.read()] != [[1500, 300]]:  # rates of 5 seconds each
            assert time.monotonic() < deadline, gpus.read()
            time.sleep(0.02)
        assert gpus.sources == ["dcgm", "nvidia-smi"]
    finally:
        gpus.stop()


def test_a_gpu_that_is_not_reported_any_more_is_missing(tools: Path) -> None:
    write(tools / "nvidia-smi", "printf '0, 90, 10, 80, 300.5, 50, 0, 0\\n'\nexec /bin/sleep 60\n")
    gpus = Gpus()
    gpus.start()
    try:
        assert len(rows_of(gpus, 0)) == 1
        assert gpus.read(fresh_s=-1.0) == []
    finally:
        gpus.stop()


def test_lines_come_as_they_are_printed(tools: Path) -> None:
    """A tool of the C library keeps lines for a pipe, unless `stdbuf` tells it not to."""
    stdbuf, sed = shutil.which("stdbuf", path="/usr/bin"), shutil.which("sed", path="/bin:/usr/bin")
    assert stdbuf is not None
    (tools / "stdbuf").symlink_to(stdbuf)
    write(
        tools / "nvidia-smi",
        f'test "$1" = nvlink && exit 3\n(echo "0, 90, 10, 80, 300.5, 50, 0, 0"; /bin/sleep 20)'
        f' | exec {sed} ""\n',
    )
    gpus = Gpus()
    gpus.start()
    try:
        assert len(rows_of(gpus, 0)) == 1
    finally:
        gpus.stop()


def test_a_node_without_gpus(tools: Path) -> None:
    gpus = Gpus()
    gpus.start()
    assert (gpus.read(), gpus.sources) == ([], [])


def test_the_labs_nvidia_smi_answers_as_the_real_one(tools: Path) -> None:
    stand_in = Path(__file__).parents[4] / "lab/images/stand_ins/nvidia_smi.py"
    shown = {"gpus": 2, "gpu": "A100", "gpu_memory_mib": 40960, "nvswitch": True, "driver": "595.1"}
    (tools / "instance-type.json").write_text(json.dumps(shown))
    text = stand_in.read_text().replace("/etc/gpuctl-lab", str(tools))
    smi = tools / "nvidia-smi"
    smi.write_text(text.replace("#!/usr/bin/python3", f"#!{sys.executable}"))
    smi.chmod(0o755)
    gpus = Gpus()
    gpus.start()
    try:
        idle = [0, 0, 40960, 68.25, 31, 0, 0, 0, 0]
        assert rows_of(gpus, 2) == [[0, *idle], [1, *idle]]
        assert gpus.sources == ["nvidia-smi", "nvidia-smi nvlink"]
    finally:
        gpus.stop()
