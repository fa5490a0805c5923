"""The server's threads: requests side by side, one thread for many requests, none at the end."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

from werkzeug.serving import WSGIRequestHandler

from lab.api.worker_threads import WorkerServer

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Quiet(WSGIRequestHandler):
    def log_request(self, *_: Any) -> None:
        pass


@contextmanager
def serving(meet: Callable[[], object]) -> Iterator[tuple[str, set[threading.Thread]]]:
    """A server that calls `meet` at each request: its URL, and the threads that have answered."""
    seen: set[threading.Thread] = set()

    def application(_: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        seen.add(threading.current_thread())
        meet()
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    server = WorkerServer("127.0.0.1", 0, application, _Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(url: str) -> bytes:
    with urlopen(url, timeout=30) as answer:
        found: bytes = answer.read()
    return found


def test_no_request_waits_for_another_one() -> None:
    barrier = threading.Barrier(5, timeout=30)
    with serving(barrier.wait) as (url, seen):
        for _ in range(2):  # with new threads, and with idle ones
            clients = [threading.Thread(target=ask, args=(url,)) for _ in range(5)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            assert not barrier.broken
        assert len(seen) >= 5


def test_a_thread_answers_many_requests_and_ends_with_the_server() -> None:
    with serving(lambda: None) as (url, seen):
        assert {ask(url) for _ in range(100)} == {b"ok"}
    assert 1 <= len(seen) < 100
    for thread in seen:
        thread.join(30)
        assert not thread.is_alive()
