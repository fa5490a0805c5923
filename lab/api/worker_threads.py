"""A server whose threads answer one request after the other."""

from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from werkzeug.serving import ThreadedWSGIServer

_Connection = tuple[Any, Any]
"""A client's connection and its address."""


class WorkerServer(ThreadedWSGIServer):
    """werkzeug's server with threads that are kept until it is closed.

    werkzeug starts a thread for each request, which takes a tenth of the time of a small request.
    A request never waits for another one: without an idle thread a new one starts.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._connections: SimpleQueue[_Connection | None] = SimpleQueue()
        self._lock, self._idle, self._started = Lock(), 0, 0
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Let an idle thread answer the connection, or a new one."""
        with self._lock:
            is_new = self._idle == 0
            self._idle -= not is_new
            self._started += is_new
        self._connections.put((request, client_address))
        if is_new:
            Thread(target=self._work, name="request", daemon=True).start()

    def server_close(self) -> None:
        """Close the server's socket, and end the threads after the requests that they answer."""
        super().server_close()
        for _ in range(self._started):
            self._connections.put(None)

    def _work(self) -> None:
        while (connection := self._connections.get()) is not None:
            self.process_request_thread(*connection)
            with self._lock:
                self._idle += 1
