"""E-mails of notifications, sent by the agent's own process to a real SMTP server with TLS."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.agent.notify.notices import email_body
from engine.agent.notify.notification import send_email
from engine.contract.head_events import RunFinished
from engine.plan.notify_plan import check_secrets, secret_names
from tests.engine.agent.notify.test_notices import AT, WHO, read
from tests.engine.agent.notify.test_notification import SENT, free_port, run
from tests.engine.bare_events import STARTED
from tests.engine.conftest import make_plan
from tests.engine.mail_servers import PASSWORD, USER, MailServer, mail_server
from tests.engine.webhooks import make_certificate

BODY = {
    "id": "job-000001.7",
    "subject": "run job-000001 has failed: über",
    "text": "über\n\na: b\n",
}
EMAIL = {
    "host": "email-smtp.us-east-1.amazonaws.com",
    "sender": "gpuctl@example.com",
    "to": ("ann@example.com", "ben@example.org"),
    "user": {"secret": "SMTP_USER"},
    "password": {"secret": "SMTP_PASSWORD"},
}


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = make_certificate(tmp_path / "one.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    return made


@pytest.fixture
def server(certificate: Path) -> Iterator[MailServer]:
    with mail_server(certificate) as server:
        yield server


def order(to: str, **values: str) -> dict[str, Any]:
    login = {"user": USER, "password": PASSWORD}
    addresses = {"sender": "gpuctl@example.com", "to": "ann@example.com,ben@example.org"}
    values = {**addresses, **login, **values}
    body = json.dumps(BODY)
    return {"form": "email", "to": to, "values": values, "variables": {}, "body": body}


def test_a_mail_is_sent_after_starttls_and_a_login(server: MailServer) -> None:
    assert run(order(server.to)) == SENT
    assert server.logins == [True], "the password is sent over TLS"
    assert server.senders == ["gpuctl@example.com"]
    assert server.recipients == ["ann@example.com", "ben@example.org"]
    (mail,) = server.mails
    assert mail["Subject"] == BODY["subject"]
    assert (mail["From"], mail["To"]) == ("gpuctl@example.com", "ann@example.com, ben@example.org")
    assert mail["Message-ID"] == "<job-000001.7@gpuctl>"
    assert mail.get_content().replace("\r\n", "\n") == "über\n\na: b\n"


def test_a_mail_is_sent_where_tls_comes_first(certificate: Path) -> None:
    with mail_server(certificate, 2465, is_wrapped=True) as server:
        assert send_email(order(server.to)) == SENT
    assert (server.logins, len(server.mails)) == ([True], 1)


def test_a_server_whose_certificate_is_not_valid_gets_no_password(
    server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    why = "the server's certificate is not valid: self-signed certificate"
    assert send_email(order(server.to)) == {**SENT, "error": why}
    assert server.logins == []


def test_a_server_without_tls_gets_no_password(server: MailServer) -> None:
    server.has_starttls = False
    why = "the server offers no TLS, or no login"
    assert send_email(order(server.to)) == {**SENT, "error": why, "is_final": True}
    assert server.logins == []


@pytest.mark.parametrize(
    ("answers", "error", "is_final"),
    [
        (
            {"RCPT": "451 try later"},
            "SMTP 451 for ann@example.com, ben@example.org: try later",
            False,
        ),
        (
            {"RCPT": "550 no such user"},
            "SMTP 550 for ann@example.com, ben@example.org: no such user",
            True,
        ),
        (
            {"DATA": "554 Message rejected: Email address is not verified."},
            "SMTP 554: Message rejected: Email address is not verified.",
            True,
        ),
        ({"MAIL": "454 Throttling failure"}, "SMTP 454: Throttling failure", False),
        ({"MAIL": ""}, "the server closed the connection", False),
    ],
)
def test_what_the_server_refuses(
    server: MailServer, answers: dict[str, str], error: str, is_final: bool
) -> None:
    server.answers = answers
    assert send_email(order(server.to)) == {**SENT, "error": error, "is_final": is_final}
    assert server.mails == []


def test_a_wrong_password_is_final_and_in_no_error(server: MailServer) -> None:
    why = "SMTP 535: the server does not accept user and password"
    wrong = order(server.to, password="wrong-password")
    assert send_email(wrong) == {**SENT, "error": why, "is_final": True}


def test_nobody_listens() -> None:
    assert send_email(order(f"127.0.0.1:{free_port()}"))["error"] == "connection refused"


def test_the_text_has_the_notice_and_its_details_and_the_subject_is_one_line() -> None:
    _, failed = read(
        STARTED, RunFinished("failed", 1, 0, "node0:\r\nBcc: x@y.z " + 300 * "a", time=AT)
    )
    mail = json.loads(email_body(failed))
    assert mail["id"] == "job-000001.2"
    assert mail["subject"].startswith(f"{WHO} has failed after 0 s with exit code 1: node0: Bcc:")
    assert len(mail["subject"]) == 200
    first, _, *details = mail["text"].split("\n")
    assert first.startswith(f"{WHO} has failed")
    assert "cluster: demo" in details
    assert "nodes: node0, node1" in details
    assert "exit_code: 1" in details


def test_the_plan_has_the_names_of_the_secrets_alone() -> None:
    (target,) = make_plan(notify=({"email": EMAIL, "on": ("end",)},)).notify
    assert (target.form, target.to) == ("email", "email-smtp.us-east-1.amazonaws.com:587")
    assert target.values == {
        "sender": "gpuctl@example.com", "to": "ann@example.com,ben@example.org",
    }  # fmt: skip
    assert target.secrets == {"user": "SMTP_USER", "password": "SMTP_PASSWORD"}
    assert secret_names((target,)) == {"SMTP_USER", "SMTP_PASSWORD"}
    with pytest.raises(Exception, match=r"^secret SMTP_PASSWORD \(notify\[0\].email.password\) is"):
        check_secrets((target,), {"SMTP_USER": "a", "SMTP_PASSWORD": "hid\nden"})
