"""A real HTTP or HTTPS server that keeps what it gets and answers as it is told.

It is on loopback, or at an address of a lab's network, where the lab's machines reach it.
"""

import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lab.network.namespaces import enter_namespace
from lab.places import Places

T = TypeVar("T")


@dataclass
class Hook:
    """The server. It answers each request with the next of `answers`, (status, headers, body), and
    then with 200. None in their place means no answer before `released` is set.
    """

    url: str = ""
    answers: list[Any] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, _, body in self.requests]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind, and ask no resolver for the server's name, as HTTPServer does."""
        TCPServer.server_bind(self)


def listen_in(lab: Places | None, server: Callable[[], T]) -> T:
    """Return the server, which listens in the lab's network if there is one."""

    def listen() -> T:
        if lab is not None:
            with Path(f"/run/netns/{lab.namespace}").open("rb") as namespace:
                enter_namespace(namespace.fileno())
        return server()

    with ThreadPoolExecutor(1) as apart:  # only this thread enters the namespace
        return apart.submit(listen).result()


@contextmanager
def webhook(
    certificate: Path | None = None, address: str = "127.0.0.1", lab: Places | None = None
) -> Iterator[Hook]:
    """Serve; with a certificate (a PEM file that has its key too) by HTTPS."""
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.requests.append((self.path, dict(self.headers), body))
            answer = hook.answers.pop(0) if hook.answers else (200, {}, b"ok")
            if answer is None:
                hook.released.wait(30)
                return
            status, headers, text = answer
            self.send_response(status)
            for name, value in {"Content-Length": str(len(text)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = listen_in(lab, lambda: _Server((address, 0), Handler))
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "https" if certificate else "http"
    hook.url = f"{scheme}://{address}:{server.server_address[1]}/services/T0/B0/hidden"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield hook
    finally:
        hook.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def make_certificate(path: Path, address: str = "127.0.0.1") -> Path:
    """Write a certificate for the address and its key, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    holder = x509.IPAddress(ipaddress.ip_address(address))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([holder]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path
