"""The agent on a spot node: what the metadata service says reaches the run's journal."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from engine.agent.node.interruption import Metadata, watch
from engine.contract.worker_events import NodeInterrupted
from tests.engine.conftest import LocalCluster, Reader, make_plan

TIME = "2026-11-20T22:31:05Z"
DOWN = "down"


class Service:
    """IMDSv2 on loopback. `notice` is the body of spot/instance-action, None for HTTP 404.

    `answers` come before it, one after the other.
    """

    def __init__(self) -> None:
        self.notice: str | None = None
        self.answers: list[str | None] = []
        self.tokens = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # the service keeps connections

            def do_PUT(self) -> None:
                assert self.path == "/latest/api/token"
                # Six hours are the longest that AWS gives.
                assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"] == str(6 * 3600)
                service.tokens += 1
                self.reply(200, f"token{service.tokens}")

            def do_GET(self) -> None:
                assert self.path == "/latest/meta-data/spot/instance-action"
                if self.headers["X-aws-ec2-metadata-token"] != f"token{service.tokens}":
                    return self.reply(401, "")
                notice = service.answers.pop(0) if service.answers else service.notice
                if notice == DOWN:
                    self.close_connection = True  # without an answer
                elif notice is None:
                    self.reply(404, "")
                else:
                    self.reply(200, notice)

            def reply(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.server.shutdown()
    made.server.server_close()


def marked() -> str:
    return json.dumps({"action": "terminate", "time": TIME})


def test_no_notice_then_one_with_one_token(service: Service) -> None:
    metadata = Metadata(service.address)
    assert metadata.notice() is None
    service.notice = marked()
    assert metadata.notice() == ("terminate", TIME)
    assert service.tokens == 1


def test_a_token_whose_time_is_over_is_replaced(service: Service) -> None:
    metadata = Metadata(service.address)
    service.notice = marked()
    assert metadata.notice() is not None
    service.tokens += 1  # the service knows the first one no longer
    assert metadata.notice() is None
    assert metadata.notice() == ("terminate", TIME)


def test_without_a_service_or_a_token_it_says_so(service: Service) -> None:
    service.server.RequestHandlerClass.do_PUT = lambda here: here.reply(403, "no")  # type: ignore
    with pytest.raises(ValueError, match=r"^no token: HTTP 403$"):
        Metadata(service.address).notice()
    with pytest.raises(OSError):
        Metadata("127.0.0.1:1").notice()


def test_a_service_that_does_not_answer_is_not_waited_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(OSError):
            Metadata(f"127.0.0.1:{silent.getsockname()[1]}").notice()
        assert 1.9 < time.monotonic() - began < 20


def test_watching_goes_on_through_nonsense_and_silence(service: Service) -> None:
    service.answers = [None, "[1]", "{}", "no json", DOWN, None, marked()]
    reader = Reader()
    watch(Metadata(service.address), 0, reader.stream, look_s=0.01)
    (event,) = reader.events()
    assert (event["kind"], event["action"], event["at"]) == ("node_interrupted", "terminate", TIME)
    assert service.answers == []


def test_the_run_hears_of_it_and_names_it(
    cluster: LocalCluster, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{service.address}/")
    service.notice = marked()
    # It ends as a job does whose machine shuts down, once the notice is in the journal.
    told = f"until grep -q node_interrupted {cluster.folder}/journal.jsonl; do sleep 0.1; done"
    plan = replace(make_plan(nodes=1, commands=(told, "kill -TERM $$")), is_spot=True)
    verdict = cluster.execute(plan)
    (event,) = [e for e in cluster.events() if isinstance(e, NodeInterrupted)]
    assert (event.rank, event.action, event.at) == (0, "terminate", TIME)
    assert (
        verdict.reason == f"node0 was lost: AWS took its spot instance back (terminate at {TIME})"
    )
    assert (verdict.status, verdict.exit_code) == ("failed", 125)


def test_nobody_asks_where_nothing_can_be_taken_back(
    cluster: LocalCluster, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{service.address}/")
    cluster.execute(make_plan(nodes=1, commands=("sleep 1",)))
    assert service.tokens == 0
