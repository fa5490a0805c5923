"""The instance metadata service: facts about the calling instance, over IMDSv2 only.

The service identifies an instance by the address that a request comes from. It returns no secret:
no credentials, no user data. Source: "Use the Instance Metadata Service to access instance
metadata", EC2 User Guide (read 2026-11-20).
"""

import json
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

_TOKEN_PATH = "/latest/api/token"  # noqa: S105  (a path)
_DATA = "/latest/meta-data/"
_LONGEST_S = 21600
"""The longest life of a token, in seconds: six hours."""


class Metadata:
    """The service as a WSGI application. `instances` returns the instances of all regions."""

    def __init__(self, instances: Callable[[], Iterable[Any]]) -> None:
        self._instances = instances
        self._tokens: dict[str, tuple[str, float]] = {}

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request of WSGI."""
        return self.answer(Request(environ))(environ, start_response)

    def answer(self, request: Request) -> Response:
        """Return AWS's answer to one request."""
        caller = str(request.remote_addr)
        if "X-Forwarded-For" in request.headers:  # a proxy may forward another client's request
            return Response(status=403)
        if request.path == _TOKEN_PATH:
            return self._new_token(request, caller)
        if not self._is_valid(request.headers.get("X-aws-ec2-metadata-token", ""), caller):
            return Response(status=401)
        if request.method != "GET":
            return Response(status=405)
        return self._metadata(request.path, caller)

    def _new_token(self, request: Request, caller: str) -> Response:
        if request.method != "PUT":
            return Response(status=405)
        seconds = request.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if not seconds.isdigit() or not 1 <= int(seconds) <= _LONGEST_S:
            return Response(status=400)
        now = time.monotonic()
        self._tokens = {t: known for t, known in self._tokens.items() if known[1] > now}
        token = secrets.token_urlsafe(32)
        self._tokens[token] = (caller, now + int(seconds))
        return Response(token, headers={"X-aws-ec2-metadata-token-ttl-seconds": seconds})

    def _is_valid(self, token: str, caller: str) -> bool:
        owner, end = self._tokens.get(token, ("", 0.0))
        return owner == caller and time.monotonic() < end

    def _metadata(self, path: str, caller: str) -> Response:
        instance = next(
            (candidate for candidate in self._instances() if candidate.private_ip == caller), None
        )
        if instance is None or not path.startswith(_DATA):
            return Response(status=404)
        known = {
            "instance-id": instance.id,
            "instance-type": instance.instance_type,
            "local-ipv4": instance.private_ip,
            "placement/availability-zone": instance.availability_zone,
            "placement/region": instance.ec2_backend.region_name,
        }
        if instance.public_ip:
            known["public-ipv4"] = instance.public_ip
        at = instance.ec2_backend.notice_of(instance)
        if at is not None:
            notice = {"action": "terminate", "time": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
            known["spot/instance-action"] = json.dumps(notice)
        value = known.get(path.removeprefix(_DATA))
        return Response(status=404) if value is None else Response(value, mimetype="text/plain")


class _QuietHandler(WSGIRequestHandler):
    def log_request(self, *_: Any) -> None:
        """Log nothing: a node sends a request every few seconds."""


class MetadataServer:
    """A server of the metadata service on a socket that already listens, until closed."""

    def __init__(self, listening: socket.socket, metadata: Metadata) -> None:
        address, port = listening.getsockname()[:2]
        self._server = make_server(
            address, port, metadata, threaded=True, request_handler=_QuietHandler,
            fd=listening.fileno(),
        )  # fmt: skip
        self._listening = listening
        Thread(target=self._server.serve_forever, args=(0.1,), name="metadata", daemon=True).start()

    def close(self) -> None:
        """Stop the server and close its socket."""
        self._server.shutdown()
        self._server.server_close()
        self._listening.close()
