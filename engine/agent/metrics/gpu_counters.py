"""What NVIDIA's tools report of this node's GPUs, from programs that are kept open.

`nvidia-smi --loop` prints a line for each GPU at every interval: no process is started for a
sample. The data that NVLink has moved is in no such list: `nvidia-smi nvlink` is called once a
minute, and where it knows nothing, `dcgmi dmon` is kept open, if DCGM's service answers.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

LOOP_S = 5
"""Seconds between two reports of nvidia-smi."""
START_S = 1.0
"""Seconds from the job's start to the tools': they do not slow it, and a short job has none."""
NVLINK_S = 60.0
RETRY_S = 60.0
_TIMEOUT_S = 20.0
FRESH_S = 4 * LOOP_S
FIELDS = (
    "index",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "power.draw",
    "temperature.gpu",
    "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total",
)
"""What is asked of nvidia-smi, in its words: percent, MiB, MiB, W, degrees Celsius, two counts."""
QUERY = (
    "nvidia-smi",
    f"--query-gpu={','.join(FIELDS)}",
    "--format=csv,noheader,nounits",
    f"--loop={LOOP_S}",
)
NVLINK = ("nvidia-smi", "nvlink", "--getthroughput", "d")
DCGM = ("dcgmi", "dmon", "--field-id", "1011,1012", "--delay", str(LOOP_S * 1000))
"""1011 and 1012 are DCGM_FI_PROF_NVLINK_TX_BYTES and RX_BYTES, rates in bytes per second."""

_GPU = re.compile(r"GPU (\d+)")
_LINK = re.compile(r"\s+Link \d+: Data (Tx|Rx): (\d+) KiB")
_DCGM = re.compile(r"GPU (\d+)\s+(\S+)\s+(\S+)")


def gpu_row(line: str) -> tuple[int, list[float | None]] | None:
    """Return a GPU's index, and the other FIELDS; None for a line that is no row of FIELDS.

    Unknown values are None: nvidia-smi writes `[N/A]`, `N/A`, `[Not Supported]` and more.
    """
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(FIELDS) or not cells[0].isdecimal():
        return None
    return int(cells[0]), [_number(cell) for cell in cells[1:]]


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return int(value) if value == int(value) else value


def nvlink_bytes(text: str) -> dict[int, list[int]]:
    """Return the bytes that each GPU's links have sent and received, from `nvidia-smi nvlink`.

    `GPU 0: NVIDIA A100…` and then, by link, `Link 0: Data Tx: 12345 KiB`, or `N/A`.
    """
    moved: dict[int, list[int]] = {}
    gpu = -1
    for line in text.splitlines():
        if (head := _GPU.match(line)) is not None:
            gpu = int(head[1])
        elif gpu >= 0 and (link := _LINK.match(line)) is not None:
            moved.setdefault(gpu, [0, 0])[link[1] == "Rx"] += int(link[2]) << 10
    return moved


def dcgm_row(line: str) -> tuple[int, list[float]] | None:
    """Return a GPU's index and its NVLink rates from a line of `dcgmi dmon`; None for others.

    `GPU 0     144419184248     144423560785`: bytes a second, sent and received; `N/A` at first.
    """
    match = _DCGM.match(line)
    if match is None:
        return None
    sent, received = _number(match[2]), _number(match[3])
    return None if sent is None or received is None else (int(match[1]), [sent, received])


class Gpus:
    """The GPUs of this node, once `start` was called. Nobody waits for NVIDIA's tools."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[int, tuple[float, list[float | None]]] = {}
        self._links: dict[int, list[float]] = {}
        self._tools: set[subprocess.Popen[str]] = set()
        self._ended = threading.Event()
        self.sources: list[str] = []
        """The tools that have reported something, sorted: dcgm, nvidia-smi, nvidia-smi nvlink."""

    def start(self) -> None:
        """Start the tools after START_S; do nothing on a node without them."""
        if shutil.which(QUERY[0]):
            for follow in (self._follow_gpus, self._follow_links):
                threading.Thread(target=self._follow_later, args=(follow,), daemon=True).start()

    def read(self, fresh_s: float = FRESH_S) -> list[list[float | None]]:
        """Return the newest row of each GPU: FIELDS, then NVLink's bytes sent and received.

        A GPU that nvidia-smi has not reported for `fresh_s` is missing.
        """
        oldest = time.monotonic() - fresh_s
        with self._lock:
            return [
                [index, *row, *self._links.get(index, (None, None))]
                for index, (at, row) in sorted(self._rows.items())
                if at >= oldest
            ]

    def stop(self) -> None:
        """End the tools; wait for none of them: a broken GPU may hold them for ever."""
        self._ended.set()
        with self._lock:
            for tool in self._tools:
                tool.kill()

    def _follow_later(self, follow: Callable[[], None]) -> None:
        if not self._ended.wait(START_S):
            follow()

    def _follow_gpus(self) -> None:
        while not self._ended.is_set():
            for line in self._lines(QUERY):
                row = gpu_row(line)
                if row is not None:
                    self._name("nvidia-smi")
                    with self._lock:
                        self._rows[row[0]] = time.monotonic(), row[1]
            self._ended.wait(RETRY_S)

    def _follow_links(self) -> None:
        """Ask nvidia-smi for NVLink's counters; if it has none, add DCGM's rates up."""
        while not self._ended.is_set():
            links = nvlink_bytes(self._call(NVLINK))
            if not links:
                break
            self._name("nvidia-smi nvlink")
            with self._lock:
                self._links.update({gpu: list(moved) for gpu, moved in links.items()})
            self._ended.wait(NVLINK_S)
        if self._ended.is_set() or not shutil.which(DCGM[0]):
            return
        for line in self._lines(DCGM):
            rates = dcgm_row(line)
            if rates is not None:
                self._name("dcgm")
                with self._lock:
                    before = self._links.get(rates[0], [0, 0])
                    self._links[rates[0]] = [
                        total + rate * LOOP_S
                        for total, rate in zip(before, rates[1])  # noqa: B905  3.9
                    ]

    def _name(self, source: str) -> None:
        with self._lock:
            if source not in self.sources:
                self.sources = sorted([*self.sources, source])

    def _call(self, command: tuple[str, ...]) -> str:
        """Return what the command prints; nothing if it hangs."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # removed meanwhile, or stuck
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            ).stdout
        return ""

    def _lines(self, command: tuple[str, ...]) -> Iterator[str]:
        """Yield the lines of the command until it ends, each as soon as it is printed.

        Without `stdbuf` the C library of a tool may keep 4 KiB of lines for a pipe: setvbuf(3).
        """
        unbuffered = ("stdbuf", "-oL") if shutil.which("stdbuf") else ()
        try:
            tool = subprocess.Popen(
                (*unbuffered, *command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError:  # removed meanwhile
            return
        with self._lock:
            self._tools.add(tool)
        if self._ended.is_set():
            tool.kill()
        assert tool.stdout is not None
        with tool.stdout:
            yield from tool.stdout
        tool.wait()
        with self._lock:
            self._tools.discard(tool)
