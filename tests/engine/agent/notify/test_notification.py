"""One try of a notification, by the agent's own process: POST and command, and what goes wrong."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.agent.notify.notification import post
from tests.engine.webhooks import make_certificate, webhook

TRY = (
    "import pathlib, sys; from engine.agent.notify.notification import deliver;"
    " sys.exit(deliver(pathlib.Path()))"
)


def order(to: str, **fields: Any) -> dict[str, Any]:
    body = json.dumps({"text": "über"})
    return {"form": "json", "to": to, "values": {}, "variables": {}, "body": body, **fields}


def run(what: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", TRY],
        input=json.dumps(what),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    assert done.stderr == ""
    return result


SENT = {"error": "", "is_final": False, "after_s": 0}


def test_a_post_has_body_and_headers() -> None:
    with webhook() as hook:
        what = order(hook.url, values={"Authorization": "Bearer hidden"})
        assert run(what) == SENT
    ((path, headers, body),) = hook.requests
    assert path == "/services/T0/B0/hidden"
    assert json.loads(body) == {"text": "über"}
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == "Bearer hidden"


@pytest.mark.parametrize(
    ("form", "answer", "expected"),
    [
        ("json", (204, {}, b""), SENT),
        ("json", (500, {}, b"/services/T0/B0/hidden"), {"error": "HTTP 500", "is_final": False}),
        ("json", (404, {}, b"Cannot POST /hidden"), {"error": "HTTP 404", "is_final": True}),
        ("slack", (404, {}, b"Cannot POST /hidden"), {"error": "HTTP 404", "is_final": True}),
        ("slack", (403, {}, b"no_service"), {"error": "HTTP 403 (no_service)", "is_final": True}),
        (
            "slack",
            (429, {"Retry-After": "7"}, b"rate_limited"),
            {"error": "HTTP 429 (rate_limited)", "is_final": False, "after_s": 7},
        ),
        (
            "json",
            (302, {"Location": "http://127.0.0.1:9/x"}, b""),
            {"error": "HTTP 302, a redirection, which is not followed", "is_final": True},
        ),
    ],
)
def test_answers(form: str, answer: Any, expected: dict[str, Any]) -> None:
    with webhook() as hook:
        hook.answers = [answer]
        assert post(order(hook.url, form=form)) == {**SENT, **expected}
        assert len(hook.requests) == 1


def test_https_checks_the_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = make_certificate(tmp_path / "one.pem")
    with webhook(certificate) as hook:
        why = "the server's certificate is not valid: self-signed certificate"
        assert post(order(hook.url))["error"] == why
        assert hook.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert post(order(hook.url)) == SENT
    assert len(hook.requests) == 1


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://127.0.0.1:FREE/hidden", "connection refused"),
        ("http://nothing.invalid/hidden", "the host's name has no address"),
        ("http://127.0.0.1:x/hidden", "no valid answer (InvalidURL)"),
    ],
)
def test_no_error_has_the_url(url: str, error: str) -> None:
    url = url.replace("FREE", str(free_port()))
    assert post(order(url)) == {**SENT, "error": error}


def test_only_http_is_sent() -> None:
    error = "the URL does not begin with https://"
    assert post(order("file:///etc/hidden")) == {**SENT, "error": error, "is_final": True}


def test_no_answer() -> None:
    with webhook() as hook:
        hook.answers = [None]
        assert post(order(hook.url), 0.2)["error"] == "no answer within 0.2 s"


def test_a_broken_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/hidden"
        client = subprocess.Popen(
            [sys.executable, "-c", TRY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert client.stdin is not None
        client.stdin.write(json.dumps(order(url)))
        client.stdin.close()
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"hello\r\n\r\n")
        assert client.stdout is not None
        with client:
            result = json.loads(client.stdout.read())
    assert result["error"] in ("no valid answer (BadStatusLine)", "connection reset by peer")


def command(text: str, **values: str) -> dict[str, Any]:
    return order(text, form="command", values=values, variables={"GPUCTL_EVENT": "end"})


def test_a_command_gets_body_and_variables(tmp_path: Path) -> None:
    text = f'{{ cat; echo " $GPUCTL_EVENT $KEY $PATH"; }} > {tmp_path}/got'
    assert run(command(text, KEY="a b", PATH="/usr/bin:/bin")) == SENT
    got = (tmp_path / "got").read_text()
    assert got == '{"text": "\\u00fcber"} end a b /usr/bin:/bin\n'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("exit 3", "exit code 3"),
        ("echo no such user >&2; echo >&2; exit 1", "exit code 1: no such user"),
        ("kill -9 $$", "exit code -9"),
        ("head -c 300000 /dev/zero >&2; echo >&2; echo end >&2; exit 1", "exit code 1: end"),
        ("nosuchprogram", "exit code 127: bash: line 1: nosuchprogram: command not found"),
    ],
)
def test_a_command_that_fails(text: str, error: str) -> None:
    assert run(command(text)) == {**SENT, "error": error}
