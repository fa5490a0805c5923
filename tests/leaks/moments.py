"""The moment of a point: the API stops its own process at the N-th request that changes something.

While it is stopped nobody gets an answer, and a test has time to find and kill its victims.
"""

import io
import json
import os
import re
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from lab.api.server import Application

_READS = ("Describe", "Get", "List", "Simulate")
_ACTION = re.compile(rb"(?:^|&)Action=(\w+)")


class Moments:
    """An application around the API's, which counts what changes something since `file` was made.

    The file has `call` and `is_done` of a point. It is removed when the moment has come; `calls`
    next to it has the number of requests until now.
    """

    def __init__(self, api: Application, file: Path) -> None:
        self._api, self._file = api, file
        self._lock, self._made, self._count = Lock(), 0, 0

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if not _changes(environ):
            return self._api(environ, start_response)
        is_done = self._is_now()
        if is_done is False:
            os.kill(os.getpid(), signal.SIGSTOP)
        answer = self._api(environ, start_response)
        if is_done:
            os.kill(os.getpid(), signal.SIGSTOP)
        return answer

    def _is_now(self) -> bool | None:
        """Count a request; return `is_done` if it is the one, else None."""
        with self._lock, suppress(FileNotFoundError):
            if (made := self._file.stat().st_mtime_ns) != self._made:
                self._made, self._count = made, 0
            self._count += 1
            self._file.with_name("calls").write_text(str(self._count))
            wanted = json.loads(self._file.read_text())
            if self._count == wanted["call"]:
                self._file.unlink()
                return bool(wanted["is_done"])
        return None


def _changes(environ: dict[str, Any]) -> bool:
    if environ["REQUEST_METHOD"] == "GET":
        return False
    target = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    found = _ACTION.search(body)
    action = found[1].decode() if found else target
    return not action.startswith(_READS)
