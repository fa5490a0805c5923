"""The agent on a spot node: what the metadata service says reaches the run's journal."""

import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from engine.agent.journal.clock import time_of_day
from engine.agent.node.interruption import Metadata, Notice, watch
from engine.contract.worker_events import NodeInterrupted, NoticeGiven
from tests.engine.bare_plans import bare_node
from tests.engine.conftest import LocalCluster, make_plan

TIME = "2026-11-20T22:31:05Z"
DOWN = "down"
REBALANCE, SCHEDULED = "events/recommendations/rebalance", "events/maintenance/scheduled"
NODE = bare_node(0)


class Service:
    """IMDSv2 on loopback. `notice` is the body of spot/instance-action, None for HTTP 404.

    `answers` come before it, one after the other. `others` are the bodies of other paths.
    """

    def __init__(self) -> None:
        self.notice: str | None = None
        self.others: dict[str, str] = {}
        self.answers: list[str | None] = []
        self.tokens, self.oldest = 0, 1
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
                path = self.path.removeprefix("/latest/meta-data/")
                known = {f"token{n}" for n in range(service.oldest, service.tokens + 1)}
                if self.headers["X-aws-ec2-metadata-token"] not in known:
                    return self.reply(401, "")
                if path != "spot/instance-action":
                    assert path in (REBALANCE, SCHEDULED)
                    notice = service.others.get(path)
                else:
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
    service.oldest += 1  # the service knows the first one no longer
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
    reports: list[Notice] = []
    watch(Metadata(service.address), NODE, True, reports.append, look_s=0.01)
    assert reports == [NodeInterrupted(0, "terminate", TIME)]
    assert service.answers == []


def test_a_recommendation_to_leave_is_reported_once_and_before_the_end(service: Service) -> None:
    service.others[REBALANCE] = json.dumps({"noticeTime": TIME})
    service.answers = [None, None, marked()]
    reports: list[Notice] = []
    watch(Metadata(service.address), NODE, True, reports.append, look_s=0.01)
    text = "node0's spot instance is at risk: AWS recommends to leave it"
    assert reports == [
        NoticeGiven(0, "rebalance", None, text),
        NodeInterrupted(0, "terminate", TIME),
    ]


def test_scheduled_events_are_reported_when_they_are_near(service: Service) -> None:
    at = float(int(time.time()) + 600)

    def event(code: str, seconds: float, state: str = "active") -> dict[str, str]:
        text = time.strftime("%d %b %Y %H:%M:%S GMT", time.gmtime(seconds))
        return {"Code": code, "NotBefore": text, "State": state, "EventId": "instance-event-0"}

    events = [
        event("system-reboot", at + 86400),
        event("instance-stop", at, "completed"),
        event("instance-retirement", at),
    ]
    service.others[SCHEDULED] = json.dumps(events)
    reports: queue.SimpleQueue[Notice] = queue.SimpleQueue()
    watched = (Metadata(service.address), NODE, False, reports.put, 0.01, 0.01)
    threading.Thread(target=watch, args=watched, daemon=True).start()
    text = f"AWS has scheduled instance-retirement of node0 at {time_of_day(at)}"
    assert reports.get(timeout=30) == NoticeGiven(0, "maintenance", at, text)
    events[0] = event("system-reboot", at + 60)
    service.others[SCHEDULED] = json.dumps(events)
    text = f"AWS has scheduled system-reboot of node0 at {time_of_day(at + 60)}"
    assert reports.get(timeout=30) == NoticeGiven(0, "maintenance", at + 60, text)


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
    plan = replace(make_plan(nodes=1, commands=("sleep 1",)), is_rented=False)
    cluster.execute(plan)
    assert service.tokens == 0
