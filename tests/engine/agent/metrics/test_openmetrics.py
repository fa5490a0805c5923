"""The text for Prometheus, checked against OpenMetrics 1.0, and the endpoint that serves it."""

import asyncio
import json
import os
import re
import socket
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from engine.agent.metrics.endpoint import STALE_S, exposition, open_endpoint
from engine.session.bundle import agent_bundle
from tests.engine.exchange import exchange
from tests.processes import is_alive

NOW = 5000.0
UPTIME = 700.0
SAMPLE: dict[str, Any] = {
    "rank": 1,
    "time": NOW - 5,
    "cpu_s": 12.5,
    "cores": 96,
    "memory": [1 << 40, 1 << 41],
    "rdma": [123456789012345678, 7, 1, 2, 3, 4],
    "job": [3.5, 99.0],
    "gpus": [
        [0, 97, 1024, 2048, 640.25, 55, 0, 2, 5000, 6000],
        [1, 0, 0, 2048, None, 31, None, None, None, None],
    ],
}


def write(folder: Path, run_id: str, cluster: str = "demo", **fields: Any) -> None:
    folder.mkdir(exist_ok=True)
    run = {
        "run_id": run_id,
        "name": "job",
        "cluster": cluster,
        "nodes": ["node0", "node1"],
        "samples": {"1": [{**SAMPLE, **fields}]},
        "idle": {"1": {"1": NOW - 700}},
        "clock": NOW - UPTIME,
    }
    (folder / f"{run_id}.samples").write_text(json.dumps(run) + "\n")


NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_METADATA = re.compile(rf"# (TYPE|UNIT|HELP) ({NAME}) (.+)")
_POINT = re.compile(rf"({NAME})\{{({LABEL}(?:,{LABEL})*)\}} ({NUMBER})")


def families(text: str) -> dict[str, list[tuple[str, str]]]:
    """The samples (labels, value) by family, read by the specification's grammar and rules.

    https://prometheus.io/docs/specs/om/open_metrics_spec/ (2026-11-23), "Text format": the last
    line is `# EOF`; there are no empty lines; a family's lines are not interleaved, its metadata
    come first and once each; a unit is the family's suffix; `_total` is the suffix of a counter's
    point, not of its family; no two points of a family have the same labels.
    """
    *lines, end = text.removesuffix("\n").split("\n")
    assert (end, text[-1]) == ("# EOF", "\n")
    found: dict[str, list[tuple[str, str]]] = {}
    kind, known = "", set[str]()
    for line in lines:
        if (metadata := _METADATA.fullmatch(line)) is not None:
            word, name, value = metadata.groups()
            if word == "TYPE":
                assert name not in found
                assert value in ("gauge", "counter")
                assert not name.endswith("_total")
                found[name], kind, known = [], value, set()
            assert name == list(found)[-1]
            assert word not in known
            assert not found[name]
            assert word != "UNIT" or name.endswith(f"_{value}")
            known.add(word)
            continue
        point = _POINT.fullmatch(line)
        assert point is not None, line
        family = list(found)[-1]
        assert point[1] == family + ("_total" if kind == "counter" else "")
        assert known >= {"TYPE", "HELP"}
        assert point[2] not in [labels for labels, _ in found[family]]
        if kind == "counter":
            assert float(point[3]) >= 0
        found[family].append((point[2], point[3]))
    return found


NODE = 'cluster="demo",run="job-000001",node="node1",rank="1"'


def test_the_text_follows_the_specification(tmp_path: Path) -> None:
    write(tmp_path, "job-000001")
    write(tmp_path, "other-2")
    found = families(exposition(tmp_path, UPTIME))
    assert all(len(points) in (2, 4) for points in found.values())
    mine = {
        name: [value for labels, value in points if labels.startswith(NODE)]
        for name, points in found.items()
    }
    assert {name: values for name, values in mine.items() if "_gpu_" not in name} == {
        "gpuctl_node_cpu_seconds": ["12.5"],
        "gpuctl_node_cpus": ["96"],
        "gpuctl_node_memory_used_bytes": [str(1 << 40)],
        "gpuctl_node_memory_bytes": [str(1 << 41)],
        "gpuctl_node_rdma_received_bytes": ["123456789012345678"],
        "gpuctl_node_rdma_sent_bytes": ["7"],
        "gpuctl_node_rdma_dropped_packets": ["1"],
        "gpuctl_node_rdma_resent_bytes": ["2"],
        "gpuctl_node_rdma_timeouts": ["3"],
        "gpuctl_node_rdma_unresponsive": ["4"],
        "gpuctl_job_cpu_seconds": ["3.5"],
        "gpuctl_job_memory_bytes": ["99"],
    }
    assert mine["gpuctl_gpu_utilization_ratio"] == ["0.97", "0"]
    assert mine["gpuctl_gpu_memory_used_bytes"] == [str(1 << 30), "0"]
    assert mine["gpuctl_gpu_power_watts"] == ["640.25"]
    assert mine["gpuctl_gpu_ecc_uncorrected_errors"] == ["2"]
    assert found["gpuctl_gpu_idle_seconds"][0] == (f'{NODE},gpu="1"', "700")


def test_labels_are_escaped_and_stale_samples_left_out(tmp_path: Path) -> None:
    write(tmp_path, "job-000001", cluster='a"b\\c\nd')
    write(tmp_path, "old-1", time=NOW - STALE_S - 1)
    (tmp_path / "torn-1.samples").write_text('{"run_id": "torn')
    points = families(exposition(tmp_path, UPTIME))["gpuctl_node_cpus"]
    assert points == [
        (r'cluster="a\"b\\c\nd",run="job-000001",node="node1",rank="1"', "96"),
    ]
    assert exposition(tmp_path / "nothing") == "# EOF\n"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_the_endpoint_answers_on_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, port = tmp_path / "agent.pyz", free_port()
    program.write_bytes(agent_bundle().data)
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path / "memory"))
    write(tmp_path / "memory", "job-000001", time=4e9)

    async def run() -> None:
        first = await open_endpoint(program, port)
        second = await open_endpoint(program, port)  # of another run's supervisor
        assert first is not None
        assert second is not None
        assert isinstance(first, asyncio.Server)
        assert [one.getsockname() for one in first.sockets] == [("127.0.0.1", port)]
        first.close()
        url = f"http://127.0.0.1:{port}"
        status, kind, text = await asyncio.to_thread(get, f"{url}/metrics")
        assert (status, kind) == (
            200,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )
        assert families(text)["gpuctl_node_cpus"] == [(NODE, "96")]
        assert await raw(port, b"GET /other HTTP/1.1\r\n\r\n") == (
            b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 30\r\n"
            b"Connection: close\r\n\r\nonly GET /metrics is answered\n"
        )
        assert (await raw(port, b"POST /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
        assert await raw(port, b"x" * 40000) == b""
        second.close()

    asyncio.run(run())


def test_a_text_that_is_being_made_ends_with_the_run(tmp_path: Path) -> None:
    program, port = tmp_path / "agent.py", free_port()
    os.mkfifo(tmp_path / "pid")
    program.write_text(
        "import os, time, pathlib\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )

    async def run() -> int:
        server = await open_endpoint(program, port)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        maker = int(await asyncio.to_thread((tmp_path / "pid").read_text))
        writer.close()
        assert server is not None
        server.close()
        return maker

    assert not is_alive(asyncio.run(run()))


def get(url: str) -> tuple[int, str, str]:
    with urlopen(url, timeout=20) as answer:
        return answer.status, answer.headers["Content-Type"], answer.read().decode()


async def raw(port: int, request: bytes) -> bytes:
    return await exchange(await asyncio.open_connection("127.0.0.1", port), request)


def test_a_port_of_another_program_is_left_to_it(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert asyncio.run(open_endpoint(tmp_path, other.getsockname()[1])) is None
