"""A Unix socket on a node, for root only: each connection is served by another thread."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path


class Listener:
    """The socket at `path`. `attend` serves a connection, and closes it."""

    def __init__(self, path: Path, attend: Callable[[socket.socket], None]) -> None:
        self._path, self._attend = path, attend
        self._socket = socket.socket(socket.AF_UNIX)

    def open(self, backlog: int) -> None:
        """Accept connections; a socket of an earlier process is replaced. May raise OSError."""
        # It gets its name when it is ready: until then nobody may connect, also no other user.
        unready = self._path.with_suffix(f".{os.getpid()}")
        self._socket.bind(str(unready))
        unready.chmod(0o600)
        self._socket.listen(backlog)
        unready.rename(self._path)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections, and remove the socket."""
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()
