"""The boundary at which AWS's errors become ours."""

import inspect
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import botocore.exceptions
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from config.catalogue.aws_codes import aws_code, remedy
from config.errors import CloudError
from config.target import Target
from lab.buckets import make_bucket
from provision.aws.clients import aws_errors, client, forget_clients
from tests.labs import KEY

EVERY_ERROR = [
    error
    for _, error in inspect.getmembers(botocore.exceptions, inspect.isclass)
    if issubclass(error, BotoCoreError)
]

LAUNCH_CODES = [
    "InsufficientInstanceCapacity",
    "InsufficientCapacity",
    "InsufficientHostCapacity",
    "InsufficientAddressCapacity",
    "InsufficientVolumeCapacity",
    "UnfulfillableCapacity",
    "MaxSpotInstanceCountExceeded",
    "SpotMaxPriceTooLow",
    "VcpuLimitExceeded",
    "InstanceLimitExceeded",
    "ReservationCapacityExceeded",
    "Unsupported",
    "InsufficientFreeAddressesInSubnet",
    "InvalidParameterCombination",
    "InvalidParameterValue",
    "InvalidNetworkInterface",
    "InvalidAMIID",
    "PendingVerification",
    "OptInRequired",
    "UnauthorizedOperation",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "InternalError",
    "InternalFailure",
    "Unavailable",
    "ServerInternal",
    "InvalidInstanceID.NotFound",
]


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "Too bad."}}, "RunInstances")


@pytest.mark.parametrize("kind", EVERY_ERROR, ids=lambda kind: str(kind.__name__))
def test_every_error_of_botocore_is_ours(kind: type[BotoCoreError]) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "some reason")
    with pytest.raises(CloudError) as caught, aws_errors():
        raise error
    assert caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("code", LAUNCH_CODES)
def test_every_code_of_a_launch_has_a_remedy_of_its_own(code: str) -> None:
    assert aws_code(code) is not None


def test_a_refusal_says_what_was_refused_where_and_what_to_do() -> None:
    with pytest.raises(CloudError) as caught, aws_errors(zone="us-east-1a"):
        raise refusal("InsufficientInstanceCapacity")
    assert str(caught.value) == (
        "AWS refused RunInstances in us-east-1a: InsufficientInstanceCapacity: Too bad;"
        " name other zones in capacity.zones, ask for fewer nodes, or try again later"
    )
    assert caught.value.code == "InsufficientInstanceCapacity"


def test_a_detailed_code_has_its_family_s_remedy() -> None:
    with pytest.raises(CloudError) as caught, aws_errors():
        raise refusal("InvalidAMIID.Malformed")
    assert caught.value.hint == remedy("InvalidAMIID")


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield int(listener.getsockname()[1])


def test_given_credentials_need_no_files_and_no_proxy(
    target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, closed_port: int
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "of-somebody-else")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert client(target, "sts").get_caller_identity()["Account"] == "123456789012"


@pytest.mark.parametrize(
    "config",
    [
        "this is no configuration",
        "[default]\nuse_fips_endpoint = true\n",
        "[profile work]\ncredential_process = false\n[default]\nmax_attempts = no number\n",
    ],
)
@pytest.mark.parametrize("profile", [None, "work", "of-somebody-else"])
def test_the_users_files_do_not_concern_a_lab(
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    config: str,
    profile: str | None,
) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        (tmp_path / name).write_text(config)
        monkeypatch.setenv(name, str(tmp_path / name))
    if profile:
        monkeypatch.setenv("AWS_PROFILE", profile)
    forget_clients()
    assert client(target, "sts").get_caller_identity()["Account"] == "123456789012"
    make_bucket("team", str(target.endpoint), KEY)
    s3 = client(target, "s3")
    assert "team" in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}


def test_clients_made_by_many_threads_at_once_work(target: Target) -> None:
    forget_clients()
    regions = ["us-east-1", "us-west-2", "eu-west-1"] * 4

    def zones(region: str) -> str:
        ec2 = client(replace(target, region=region), "ec2")
        return ec2.describe_availability_zones()["AvailabilityZones"][0]["RegionName"]

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(zones, regions)) == regions


def test_an_unknown_profile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    target = Target("aws", "us-east-1", tmp_path, environment={"AWS_PROFILE": "work"})
    with pytest.raises(CloudError, match=r"^profile 'work' is neither in "):
        client(target, "sts")


def test_an_endpoint_that_does_not_answer_is_named(tmp_path: Path, closed_port: int) -> None:
    keys: dict[str, Any] = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    target = Target(
        "aws", "us-east-1", tmp_path, endpoint=f"http://127.0.0.1:{closed_port}", environment=keys
    )
    unreachable = pytest.raises(CloudError, match=r"^AWS cannot be reached: Could not connect")
    with unreachable as caught, aws_errors():
        client(target, "sts").get_caller_identity()
    assert caught.value.code == "EndpointConnection"


@pytest.fixture
def sign_in_page() -> Iterator[str]:
    """The URL of a server with a page for everybody."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(403)
            self.end_headers()
            self.wfile.write(b"<!doctype html>\n<title>Sign in</title>\n")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_page_in_place_of_aws_is_told(tmp_path: Path, sign_in_page: str) -> None:
    keys: dict[str, Any] = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    target = Target("aws", "us-east-1", tmp_path, endpoint=sign_in_page, environment=keys)
    with pytest.raises(CloudError) as caught, aws_errors():
        client(target, "sts").get_caller_identity()
    assert str(caught.value) == (
        "the request to AWS failed: Unable to parse response (syntax error: line 1, column 0),"
        " invalid XML received. Further retries may succeed;"
        " run `aws sts get-caller-identity` to see whether the AWS CLI fails too"
    )


def test_certificates_that_cannot_be_checked_name_their_variable(
    tmp_path: Path, sign_in_page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none.pem"))
    keys: dict[str, Any] = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    url = sign_in_page.replace("http:", "https:")
    target = Target("aws", "us-east-1", tmp_path, endpoint=url, environment=keys)
    with pytest.raises(CloudError) as caught, aws_errors():
        client(target, "ec2", attempts=1).describe_vpcs()
    assert str(caught.value) == (
        f"AWS cannot be reached: SSL validation failed for {url}/ [Errno 2] No such file or"
        " directory; set AWS_CA_BUNDLE to a file with the certificates that your network or its"
        " proxy uses"
    )


def test_a_client_is_made_once_for_the_same_keys_and_place(target: Target) -> None:
    ec2 = client(target, "ec2")
    assert client(replace(target, state=Path("/elsewhere")), "ec2") is ec2
    others = {
        "attempts": client(target, "ec2", attempts=1),
        "region": client(replace(target, region="us-west-2"), "ec2"),
        "endpoint": client(replace(target, endpoint="http://127.0.0.1:9"), "ec2"),
        "keys": client(
            replace(target, environment={**target.environment, "AWS_ACCESS_KEY_ID": "other"}), "ec2"
        ),
    }
    assert [name for name, other in others.items() if other is ec2] == []
    assert others["region"].meta.region_name == "us-west-2"
