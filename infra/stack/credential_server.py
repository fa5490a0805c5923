"""The credentials of Pulumi's engine and its provider: asked of gpuctl each time, and never kept.

They ask as containers on AWS do: a URL on loopback, and a token that the requests must have
("Container credential provider", AWS SDKs and Tools Reference Guide,
https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html). AWS's SDK for
Go, which both use, accepts a URL on loopback, comes to it only if neither variables nor files have
other credentials, and asks again five minutes before the expiration (resolve_credentials.go of
aws-sdk-go-v2/config 1.32.31, 2026-11-26).
"""

import hmac
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from threading import Thread

from config.errors import GpuctlError

log = logging.getLogger(__name__)

URL = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
TOKEN = "AWS_CONTAINER_AUTHORIZATION_TOKEN"  # noqa: S105  (a variable's name)

VALID_FOR = timedelta(minutes=10)
"""For how long credentials may be used before they are asked for again. boto3 renews its own when
they have 10 minutes left (`RefreshableCredentials` of botocore 1.44, 2026-11-26), so these last."""

_FIELDS = {
    "AWS_ACCESS_KEY_ID": "AccessKeyId",
    "AWS_SECRET_ACCESS_KEY": "SecretAccessKey",
    "AWS_SESSION_TOKEN": "Token",
}

_NO_FILES = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")


class _Server(ThreadingTCPServer):
    """A server that prints nothing: the engine may end while it is answered.

    http.server's own would look up the name of this machine first.
    """

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Log the failure of an answer."""
        log.debug("credentials were not served", exc_info=True)


@contextmanager
def credential_server(current: Callable[[], Mapping[str, str]]) -> Iterator[dict[str, str]]:
    """Serve what `current` returns until the end of the block; yield the variables that lead there.

    `current` returns variables: those of keys are served, and all others are yielded. It is called
    for each answer, in any thread. Other users of this machine reach the port, but do not know the
    token.
    """
    token = secrets.token_urlsafe(32)

    class Handler(BaseHTTPRequestHandler):
        """Answers each request that has the token."""

        def do_GET(self) -> None:
            given = self.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), token.encode()):
                self._answer(403, {"code": "Forbidden", "message": "the token is wrong"})
                return
            try:
                variables = current()
            except GpuctlError as error:
                self._answer(400, {"code": "NoCredentials", "message": error.message})
                return
            credentials = {field: variables.get(name, "") for name, field in _FIELDS.items()}
            end = datetime.now(UTC) + VALID_FOR
            self._answer(200, {**credentials, "Expiration": f"{end:%Y-%m-%dT%H:%M:%SZ}"})

        def _answer(self, status: int, fields: Mapping[str, str]) -> None:
            body = json.dumps(fields).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    others = {name: value for name, value in current().items() if name not in _FIELDS}
    with _Server(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield {
                **others,
                # Other credentials in the user's files would come first.
                **dict.fromkeys(_NO_FILES, os.devnull),
                URL: f"http://127.0.0.1:{server.server_address[1]}/",
                TOKEN: token,
            }
        finally:
            server.shutdown()
