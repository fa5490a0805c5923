"""A real SMTP server, with STARTTLS or TLS from the first byte, and a login.

It is on loopback, or at an address of a lab's network, where the lab's machines reach it.
"""

import base64
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

from lab.places import Places
from tests.engine.webhooks import listen_in

USER, PASSWORD = "AKIAIOSFODNN7EXAMPLE", "hidden-password"


@dataclass
class MailServer:
    """The server. `answers` replace its answer to a command: `{"RCPT": "550 no such user"}`.

    A command whose answer is empty ends the connection. `logins` says for each login whether the
    connection had TLS by then.
    """

    to: str = ""
    has_starttls: bool = True
    answers: dict[str, str] = field(default_factory=dict)
    logins: list[bool] = field(default_factory=list)
    senders: list[str] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    mails: list[EmailMessage] = field(default_factory=list)


class _Conversation(StreamRequestHandler):
    """One connection of a client."""

    state: MailServer
    context: ssl.SSLContext
    is_wrapped = False

    def setup(self) -> None:
        if self.is_wrapped:
            self.request = self.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self) -> None:
        self.say("220 loopback ESMTP")
        while line := self.rfile.readline():  # STARTTLS makes another file
            words = line.decode().strip()
            verb = words.partition(" ")[0].upper()
            given = self.state.answers.get(verb)
            if given == "":
                return
            answer = given or self.answer(verb, words)
            if answer:
                self.say(answer)
            if verb == "QUIT":
                return

    def finish(self) -> None:
        super().finish()
        self.request.close()  # the server closes what it was before TLS

    def answer(self, verb: str, words: str) -> str:
        """Carry out the command, and return the answer; empty if there has been one."""
        if verb == "EHLO":
            offers = ["AUTH PLAIN LOGIN", "8BITMIME"]
            if self.state.has_starttls and not self.has_tls:
                offers.insert(0, "STARTTLS")
            return "\r\n".join(["250-loopback", *(f"250-{o}" for o in offers[:-1]), "250 8BITMIME"])
        if verb == "STARTTLS":
            self.say("220 go ahead")
            self.request = self.context.wrap_socket(self.request, server_side=True)
            super().setup()
            return ""
        if verb == "AUTH":
            self.state.logins.append(self.has_tls)
            login = base64.b64decode(words.rsplit(maxsplit=1)[-1]).decode().split("\0")[1:]
            return "235 fine" if login == [USER, PASSWORD] else "535 Credentials Invalid"
        if verb in ("MAIL", "RCPT"):
            known = self.state.senders if verb == "MAIL" else self.state.recipients
            known.append(words.partition("<")[2].partition(">")[0])
            return "250 fine"
        if verb == "DATA":
            self.say("354 go on")
            lines = list(iter(self.rfile.readline, b".\r\n"))
            mail = message_from_bytes(b"".join(lines), policy=policy.default)
            self.state.mails.append(mail)
            return "250 kept"
        return "221 bye" if verb == "QUIT" else "250 fine"

    @property
    def has_tls(self) -> bool:
        return isinstance(self.request, ssl.SSLSocket)

    def say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class _Server(ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_: object) -> None:
        """Print nothing: a client that refuses the certificate is no error of the test."""


@contextmanager
def mail_server(
    certificate: Path,
    port: int = 0,
    *,
    is_wrapped: bool = False,
    address: str = "127.0.0.1",
    lab: Places | None = None,
) -> Iterator[MailServer]:
    """Serve with the certificate, a PEM file that has its key too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    state = MailServer()
    names = {"state": state, "context": context, "is_wrapped": is_wrapped}
    handler = type("Conversation", (_Conversation,), names)
    with listen_in(lab, lambda: _Server((address, port), handler)) as server:
        state.to = f"{address}:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
