"""One try to send a notification, in a separate process, which the supervisor can end.

It reads `{"form", "to", "values", "variables", "body"}` from stdin and prints the result as JSON.
No text of a result has the URL, a header or a variable, because these may be secrets.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from engine.agent.node.login_environment import login_environment

Message = dict[str, Any]
SOCKET_S = 4.0
"""Seconds for each step of a POST; the supervisor bounds the whole."""
_KEPT = 1000  # bytes of a command's last error output
_SLACKS_ERROR = re.compile(r"[a-z_]{2,40}")
_PASSING = (408, 429)  # of the statuses 4xx, those that a later try may not get


def deliver(_: Path) -> int:
    """Make one try, print its result, `{"error", "is_final", "after_s"}`, and return 0.

    `error` is empty if it succeeded. `is_final` means that another try would be in vain, `after_s`
    is the time that the server wants to have before.
    """
    order: Message = json.load(sys.stdin)
    result = run_command(order) if order["form"] == "command" else post(order)
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


def _result(error: str = "", *, is_final: bool = False, after_s: float = 0) -> Message:
    return {"error": error, "is_final": is_final, "after_s": after_s}


def run_command(order: Message) -> Message:
    """Run the command with the environment of a login, and the body as its stdin."""
    environment = {**login_environment(), **order["values"], **order["variables"]}
    with subprocess.Popen(
        ["bash", "-c", order["to"]],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            process.stdin.write(order["body"].encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it does not read it
        last = b""
        errors = process.stderr.fileno()
        for piece in iter(lambda: os.read(errors, 65536), b""):
            last = (last + piece)[-_KEPT:]
    if process.returncode == 0:
        return _result()
    lines = last.decode(errors="replace").split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return _result(f"exit code {process.returncode}" + (f": {said}" if said else ""))


def post(order: Message, socket_s: float = SOCKET_S) -> Message:
    """POST the body to the URL; redirections are not followed. Each step may take `socket_s`."""

    class Refuse(urllib.request.HTTPRedirectHandler):
        """A redirection is an error: it could send the secret elsewhere."""

        def redirect_request(self, *_: Any) -> None:
            return None

    if not order["to"].startswith(("https://", "http://")):
        return _result("the URL does not begin with https://", is_final=True)
    for name, value in login_environment().items():
        if name.lower().endswith("_proxy"):
            os.environ[name] = value
    headers = {"Content-Type": "application/json", "User-Agent": "gpuctl", **order["values"]}
    try:
        body = order["body"].encode()
        request = urllib.request.Request(order["to"], body, headers, method="POST")  # noqa: S310  see above
        with urllib.request.build_opener(Refuse).open(request, timeout=socket_s) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        return _status(error, order["form"])
    except (OSError, http.client.HTTPException, ValueError) as error:
        return _result(_describe(error, socket_s))
    return _result()


def _status(error: Any, form: str) -> Message:
    """Return the result of an answer that is not 2xx; Slack says why in a word."""
    text = f"HTTP {error.code}"
    if 300 <= error.code < 400:
        return _result(f"{text}, a redirection, which is not followed", is_final=True)
    if form == "slack":
        said = error.read(100).decode(errors="replace").strip()
        text += f" ({said})" if _SLACKS_ERROR.fullmatch(said) else ""
    wait = error.headers.get("Retry-After", "")
    is_final = error.code < 500 and error.code not in _PASSING
    return _result(text, is_final=is_final, after_s=int(wait) if wait.isdecimal() else 0)


def _describe(error: Exception, socket_s: float) -> str:
    """Return the error in words that have nothing of the URL."""
    cause = getattr(error, "reason", error)  # urllib's URLError has the error of the socket
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the server's certificate is not valid: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason or type(cause).__name__}"
    if isinstance(cause, socket.gaierror):
        return "the host's name has no address"
    if isinstance(cause, socket.timeout):
        return f"no answer within {socket_s:g} s"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return f"no HTTP answer ({type(cause).__name__})"
