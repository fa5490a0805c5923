"""One try to send a notification, in a separate process, which the supervisor can end.

It reads `{"form", "to", "values", "variables", "body"}` from stdin and prints the result as JSON.
No text of a result has the URL, a header or a variable, because these may be secrets.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import smtplib
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Any

from engine.agent.node.login_environment import login_environment

Message = dict[str, Any]
SOCKET_S = 4.0
"""Seconds for each step of a POST; the supervisor bounds the whole."""
_KEPT = 1000  # bytes of a command's last error output
_SLACKS_ERROR = re.compile(r"[a-z_]{2,40}")
TLS_PORTS = (465, 2465)
"""The ports on which a mail server begins with TLS; on others it is asked for by STARTTLS. SES has
587 and 2587 too: SES Developer Guide, "Connecting to an Amazon SES SMTP endpoint" (2026-11-29)."""
_PASSING = (408, 429)  # of the statuses 4xx, those that a later try may not get


def deliver(_: Path) -> int:
    """Make one try, print its result, `{"error", "is_final", "after_s"}`, and return 0.

    `error` is empty if it succeeded. `is_final` means that another try would be in vain, `after_s`
    is the time that the server wants to have before.
    """
    order: Message = json.load(sys.stdin)
    send = {"command": run_command, "email": send_email}.get(order["form"], post)
    result = send(order)
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


def send_email(order: Message, socket_s: float = SOCKET_S) -> Message:
    """Send the body by SMTP, over TLS alone. Each step may take `socket_s`."""
    values, mail = order["values"], json.loads(order["body"])
    recipients = values["to"].split(",")
    message = EmailMessage()
    message["From"], message["To"] = values["sender"], ", ".join(recipients)
    message["Subject"], message["Date"] = mail["subject"], formatdate()
    message["Message-ID"] = f"<{mail['id']}@gpuctl>"
    message.set_content(mail["text"])
    try:
        with _mail_server(order["to"], socket_s) as server:
            server.login(values["user"], values["password"])
            refused = server.send_message(message, values["sender"], recipients)
    except smtplib.SMTPException as error:
        return _mail_error(error)
    except (OSError, ValueError) as error:
        return _result(_describe(error, socket_s))
    if refused:
        return _mail_error(smtplib.SMTPRecipientsRefused(refused), is_final=True)
    return _result()


def _mail_server(to: str, socket_s: float) -> smtplib.SMTP:
    """Return a connection with TLS to the server at `HOST:PORT`; its certificate is checked."""
    host, _, port = to.rpartition(":")
    context = ssl.create_default_context()
    name = socket.gethostname()  # smtplib would ask a resolver, which may take long
    if int(port) in TLS_PORTS:
        return smtplib.SMTP_SSL(host, int(port), name, timeout=socket_s, context=context)
    server = smtplib.SMTP(host, int(port), name, timeout=socket_s)
    try:
        server.starttls(context=context)
    except BaseException:
        server.close()
        raise
    return server


def _mail_error(error: smtplib.SMTPException, *, is_final: bool = False) -> Message:
    """Return the result of a refusal; another try is in vain after a status 5xx."""
    if isinstance(error, smtplib.SMTPAuthenticationError):
        text = f"SMTP {error.smtp_code}: the server does not accept user and password"
        return _result(text, is_final=error.smtp_code >= 500)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        refused = error.recipients
        code, reason = next(iter(refused.values()))
        text = f"SMTP {code} for {', '.join(refused)}{_mail_reason(reason)}"
        return _result(text, is_final=is_final or all(c >= 500 for c, _ in refused.values()))
    if isinstance(error, smtplib.SMTPResponseException):
        text = f"SMTP {error.smtp_code}{_mail_reason(error.smtp_error)}"
        return _result(text, is_final=error.smtp_code >= 500)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return _result("the server offers no TLS, or no login", is_final=True)
    return _result("the server closed the connection")


def _mail_reason(reason: Any) -> str:
    """Return a server's reason in one line, such as SES's `Email address is not verified`."""
    text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return f": {' '.join(text.split())[:200]}"


def _describe(error: Exception, socket_s: float) -> str:
    """Return the error in words that have nothing of the URL."""
    # urllib's URLError has the error of the socket.
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
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
    return f"no valid answer ({type(cause).__name__})"
