"""The endpoint for Prometheus on the head: http://127.0.0.1:9713/metrics, while a run goes on.

Every supervisor listens on the same port, and the one that the kernel chooses answers for all runs
of the head. A separate process makes the text: the supervisor waits for nothing but pipes.

The form is that of OpenMetrics 1.0: https://prometheus.io/docs/specs/om/open_metrics_spec/
(2026-11-23). A family's samples are together, a unit is the end of its family's name, counters end
in `_total`, and the last line is `# EOF`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from engine.agent.journal.clock import steady
from engine.agent.journal.journal_file import Message
from engine.agent.journal.memory_folder import memory_folder
from engine.contract.names import NEWEST

STALE_S = 30.0
"""A node's sample that is older is left out: the node is lost, or its job has ended."""
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_MIB = 1 << 20


class Newest(NamedTuple):
    """The newest sample of a node: its labels, the sample, and the seconds of its idle GPUs."""

    labels: dict[str, str]
    sample: Message
    idle: dict[str, float]


class Family(NamedTuple):
    """A metric: its name behind `gpuctl_`, its type, its unit, its help."""

    name: str
    kind: str
    unit: str
    help: str


class _Source(NamedTuple):
    """Where a family's value is in a sample: the field, its place there, and a factor."""

    family: Family
    field: str
    place: int | None = None
    factor: float = 1


def _counter(name: str, unit: str, words: str) -> Family:
    return Family(name, "counter", unit, words)


def _gauge(name: str, unit: str, words: str) -> Family:
    return Family(name, "gauge", unit, words)


_NODE = (
    _Source(_counter("node_cpu_seconds", "seconds", "Busy time of all processors."), "cpu_s"),
    _Source(_gauge("node_cpus", "", "Number of processors."), "cores"),
    _Source(_gauge("node_memory_used_bytes", "bytes", "Memory in use."), "memory", 0),
    _Source(_gauge("node_memory_bytes", "bytes", "Memory in total."), "memory", 1),
    _Source(_gauge("node_disk_used_bytes", "bytes", "Used space where runs are."), "space", 0),
    _Source(_gauge("node_disk_bytes", "bytes", "Size of the disk where runs are."), "space", 1),
    _Source(_counter("node_disk_read_bytes", "bytes", "Bytes read from disks."), "disk", 0),
    _Source(_counter("node_disk_written_bytes", "bytes", "Bytes written to disks."), "disk", 1),
    _Source(_counter("node_network_received_bytes", "bytes", "Bytes over IP."), "network", 0),
    _Source(_counter("node_network_sent_bytes", "bytes", "Bytes over IP."), "network", 1),
    _Source(_counter("node_rdma_received_bytes", "bytes", "Bytes over EFA or RDMA."), "rdma", 0),
    _Source(_counter("node_rdma_sent_bytes", "bytes", "Bytes over EFA or RDMA."), "rdma", 1),
    _Source(_counter("node_rdma_dropped_packets", "", "Packets that EFA dropped."), "rdma", 2),
    _Source(_counter("node_rdma_resent_bytes", "bytes", "Bytes that EFA sent again."), "rdma", 3),
    _Source(_counter("node_rdma_timeouts", "", "Times that EFA changed a path."), "rdma", 4),
    _Source(_counter("node_rdma_unresponsive", "", "Peers of EFA without answer."), "rdma", 5),
    _Source(_counter("job_cpu_seconds", "seconds", "Time of the run's processes."), "job", 0),
    _Source(_gauge("job_memory_bytes", "bytes", "Memory of the run's processes."), "job", 1),
)
_GPU = (
    _Source(_gauge("gpu_utilization_ratio", "ratio", "Part of time with work."), "gpus", 1, 0.01),
    _Source(_gauge("gpu_memory_used_bytes", "bytes", "GPU memory in use."), "gpus", 2, _MIB),
    _Source(_gauge("gpu_memory_bytes", "bytes", "GPU memory in total."), "gpus", 3, _MIB),
    _Source(_gauge("gpu_power_watts", "watts", "Power of the GPU."), "gpus", 4),
    _Source(_gauge("gpu_temperature_celsius", "celsius", "Temperature of the GPU."), "gpus", 5),
    _Source(_counter("gpu_ecc_corrected_errors", "", "Since the driver's start."), "gpus", 6),
    _Source(_counter("gpu_ecc_uncorrected_errors", "", "Since the driver's start."), "gpus", 7),
    _Source(_counter("gpu_nvlink_sent_bytes", "bytes", "Bytes sent over NVLink."), "gpus", 8),
    _Source(_counter("gpu_nvlink_received_bytes", "bytes", "Bytes from NVLink."), "gpus", 9),
)
_IDLE = _gauge("gpu_idle_seconds", "seconds", "Time without work, from 10 minutes on.")


def newest_samples(folder: Path, now: float) -> list[Newest]:
    """Return the newest sample of each node of each run; `now` is steady time."""
    newest = []
    for path in sorted(folder.glob(f"*.{NEWEST}")):
        # The run has just ended, or another version of the agent wrote the file.
        with contextlib.suppress(OSError, ValueError, KeyError):
            run = json.loads(path.read_text(encoding="utf-8"))
            time = run["clock"] + now
            for rank, samples in sorted(run["samples"].items(), key=lambda item: int(item[0])):
                if time - samples[-1]["time"] > STALE_S:
                    continue
                labels = {
                    "cluster": run["cluster"],
                    "run": run["run_id"],
                    "node": run["nodes"][int(rank)],
                    "rank": rank,
                }
                idle = {gpu: time - since for gpu, since in run["idle"].get(rank, {}).items()}
                newest.append(Newest(labels, samples[-1], idle))
    return newest


def show(folder: Path) -> int:
    """Print the newest samples of this node's runs in OpenMetrics; return 0."""
    sys.stdout.write(exposition(folder))
    return 0


def exposition(folder: Path, now: float | None = None) -> str:
    """Return the text of the samples in /run/gpuctl, or another folder; `now` is steady time."""
    nodes = newest_samples(folder, steady() if now is None else now)
    lines: list[str] = []
    for source in _NODE:
        lines += _family(source.family, _of_nodes(nodes, source))
    for source in _GPU:
        lines += _family(source.family, _of_gpus(nodes, source))
    lines += _family(_IDLE, _idle(nodes))
    return "\n".join([*lines, "# EOF", ""])


def _of_nodes(nodes: Iterable[Newest], source: _Source) -> Iterator[tuple[dict[str, str], float]]:
    for labels, sample, _ in nodes:
        value = sample.get(source.field)
        if value is not None:
            yield labels, value if source.place is None else value[source.place]


def _of_gpus(nodes: Iterable[Newest], source: _Source) -> Iterator[tuple[dict[str, str], float]]:
    assert source.place is not None
    for labels, sample, _ in nodes:
        for row in sample.get(source.field) or ():
            value = row[source.place]
            if value is not None:
                yield {**labels, "gpu": str(row[0])}, round(value * source.factor, 4)


def _idle(nodes: Iterable[Newest]) -> Iterator[tuple[dict[str, str], float]]:
    for labels, _, idle in nodes:
        for gpu, seconds in idle.items():
            yield {**labels, "gpu": gpu}, round(seconds)


def _family(family: Family, values: Iterator[tuple[dict[str, str], float]]) -> list[str]:
    """Return the lines of a family; none without a value."""
    name = f"gpuctl_{family.name}"
    end = "_total" if family.kind == "counter" else ""
    lines = [f"{name}{end}{{{_labels(labels)}}} {_figure(value)}" for labels, value in values]
    if not lines:
        return []
    unit = [f"# UNIT {name} {family.unit}"] if family.unit else []
    return [f"# TYPE {name} {family.kind}", *unit, f"# HELP {name} {family.help}", *lines]


def _figure(value: float) -> str:
    """Return the number with all its digits: counters of bytes have many."""
    return str(int(value)) if value == int(value) else repr(value)


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


PORT = 9713
_LOOPBACK = "127.0.0.1"
_REQUEST_S = 5.0
_ANSWER_S = 20.0
_LARGEST = 16 * 1024  # bytes of a request
_NO_REQUEST = (
    OSError,
    asyncio.TimeoutError,
    asyncio.IncompleteReadError,
    asyncio.LimitOverrunError,  # the request is too long
)


async def open_endpoint(program: Path, port: int = PORT) -> asyncio.AbstractServer | None:
    """Listen on the port of this machine's loopback; None if another program has it.

    `program` is the agent, whose command `metrics` prints the text.
    """
    one_at_a_time = asyncio.Semaphore()

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A client that left, or that sends no request, ends only its connection.
            with contextlib.suppress(*_NO_REQUEST):
                request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_S)
                async with one_at_a_time:
                    answer = await _answer(request, program)
                writer.write(answer)
                await asyncio.wait_for(writer.drain(), _ANSWER_S)
        finally:
            writer.close()  # asyncio does it after an error, but not in Python 3.11.2

    with contextlib.suppress(OSError):  # the run does not need it
        return await asyncio.start_server(attend, _LOOPBACK, port, reuse_port=True, limit=_LARGEST)
    return None


async def _answer(request: bytes, program: Path) -> bytes:
    """Return the whole answer to the request."""
    words = request.split(b"\r\n", 1)[0].split()
    if words[:1] != [b"GET"] or words[1:2] != [b"/metrics"]:
        return _response("404 Not Found", "text/plain", b"only GET /metrics is answered\n")
    maker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-IS",
        str(program),
        "metrics",
        str(memory_folder()),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
    )
    try:
        text, _ = await asyncio.wait_for(maker.communicate(), _ANSWER_S)
    except asyncio.TimeoutError:  # noqa: UP041  Python before 3.11
        text = b""
    finally:  # also if the run ends first and this task is cancelled
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            maker.kill()
        await maker.wait()
    if maker.returncode != 0:
        return _response("500 Internal Server Error", "text/plain", b"no samples can be read\n")
    return _response("200 OK", CONTENT_TYPE, text)


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
