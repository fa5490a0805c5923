"""AWS's list of Lustre clients: it is read with a bound, whatever its server sends."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from config.errors import CloudError
from config.target import Target
from provision.aws.lustre_clients import client_kernels

LIST = "fsx-lustre-client-repo/ubuntu/dists/noble/main/binary-amd64/Packages.gz"
MIB = 1024 * 1024


@contextmanager
def repository(answer: bytes, folder: Path) -> Iterator[Target]:
    """Serve `answer` as the repository's list."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Write nothing on the test's standard error."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            endpoint = f"http://127.0.0.1:{server.server_port}"
            yield Target("test", "us-east-1", folder, endpoint=endpoint)
        finally:
            server.shutdown()
            thread.join()


def test_the_kernels_are_sorted_by_their_numbers(tmp_path: Path) -> None:
    names = ("6.8.0-1063-aws", "6.17.0-1001-aws", "aws", "6.8.0-1063-aws")
    text = "".join(f"Package: lustre-client-modules-{name}\n\n" for name in names)
    with repository(gzip.compress(text.encode()), tmp_path) as target:
        assert client_kernels(target, "dlami-ubuntu-24.04") == (
            "6.8.0-1063-aws",
            "6.17.0-1001-aws",
        )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (gzip.compress(bytes(33 * MIB)), "has more than 32 MiB, unpacked"),
        (
            gzip.compress(bytes(33 * MIB), compresslevel=0),
            "cannot be read: Compressed file ended before the end-of-stream marker was reached",
        ),
        (b"<html>", "cannot be read: Not a gzipped file (b'<h')"),
    ],
    ids=["unpacked", "packed", "no gzip"],
)
def test_a_list_that_is_too_large_or_no_list_is_an_error(
    tmp_path: Path, answer: bytes, why: str
) -> None:
    with repository(answer, tmp_path) as target, pytest.raises(CloudError) as caught:
        client_kernels(target, "dlami-ubuntu-24.04")
    assert caught.value.message == f"{target.endpoint}/{LIST} {why}"
