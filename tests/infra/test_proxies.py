"""The user's proxies: AWS is reached through them, this machine's own ports are not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_command import COMMAND

pytestmark = pytest.mark.slow

ASK = """
from concurrent.futures import ThreadPoolExecutor

import grpc
from pulumi.runtime.proto.resource_pb2 import SupportsFeatureRequest
from pulumi.runtime.settings import Settings

import infra.stack.inline_program

server = grpc.server(ThreadPoolExecutor(1))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
monitor = Settings(project="p", stack="s", monitor=f"127.0.0.1:{port}").monitor
try:
    monitor.SupportsFeature(SupportsFeatureRequest(id="x"), timeout=20)
except grpc.RpcError as error:
    print(error.code().name)
server.stop(None)
"""
"""Call the SDK's monitor, which is a server without methods here."""


@pytest.mark.parametrize(
    "variables",
    [
        {"https_proxy": "PROXY"},
        {"http_proxy": "PROXY"},
        {"grpc_proxy": "PROXY"},
        {"https_proxy": "PROXY", "http_proxy": "PROXY", "no_proxy": "localhost"},
        {"grpc_proxy": "PROXY", "no_grpc_proxy": "example.org"},
    ],
)
def test_pulumis_sdk_reaches_its_engine_without_the_users_proxy(
    variables: dict[str, str],
) -> None:
    proxy = "http://127.0.0.1:1"  # nobody listens there
    given = {name: value.replace("PROXY", proxy) for name, value in variables.items()}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=Path(__file__).parents[2], env={**os.environ, **given},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "UNIMPLEMENTED\n"


def test_doctor_shows_proxies_without_their_passwords(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(COMMAND), "doctor", "--region", "us-east-1", "--json"],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "AWS_EC2_METADATA_DISABLED": "true",
            "https_proxy": "http://me:hidden@proxy:3128",
            "no_proxy": "localhost",
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (proxies,) = [one for one in json.loads(done.stdout) if one["name"] == "proxies"]
    assert (proxies["seen"], proxies["remedy"]) == (
        "AWS and downloads: https_proxy=http://***@proxy:3128, no_proxy=localhost",
        "",
    )
