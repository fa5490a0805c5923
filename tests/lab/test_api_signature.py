"""Only requests that are signed with the lab's key are answered; others change nothing."""

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from lab.access_key import AccessKey
from tests.lab.world import World, refused, world
from tests.labs import KEY

NEW_VPC = b"Action=CreateVpc&Version=2016-11-15&CidrBlock=10.9.0.0%2F16"
INVALID = "AWS was not able to validate the provided access credentials"
TOKEN = "The security token included in the request is invalid."
MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your AWS"
    " Secret Access Key and signing method. Consult the service documentation for details."
)


@pytest.fixture(scope="module")
def region() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_is_done(region: World) -> Iterator[None]:
    yield
    assert [vpc["VpcId"] for vpc in region.ec2.describe_vpcs()["Vpcs"]] == [region.vpc]


def ask(
    region: World, headers: Mapping[str, str], body: bytes = NEW_VPC, path: str = "/"
) -> tuple[int, str]:
    """The answer to a request that is sent as it is."""
    connection = http.client.HTTPConnection(region.url.removeprefix("http://"), timeout=10)
    connection.request("POST", path, body, dict(headers))
    answer = connection.getresponse()
    told = answer.read().decode()
    connection.close()
    return answer.status, told


def signed(
    region: World,
    headers: Mapping[str, str] | None = None,
    age: timedelta = timedelta(0),
    service: str = "ec2",
) -> dict[str, str]:
    """The headers of a request for a VPC as botocore signs it, that old."""
    request = AWSRequest("POST", f"{region.url}/", headers=headers or {}, data=NEW_VPC)
    date = (datetime.now(UTC) - age).strftime("%Y%m%dT%H%M%SZ")
    request.context["timestamp"] = date
    request.headers["X-Amz-Date"] = date
    signer = SigV4Auth(Credentials(KEY.key_id, KEY.secret), service, "us-east-1")
    text = signer.string_to_sign(request, signer.canonical_request(request))
    names = signer.signed_headers(signer.headers_to_sign(request))
    request.headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={names},"
        f" Signature={signer.signature(text, request)}"
    )
    return dict(request.headers.items())


def ec2_error(code: str, text: str) -> str:
    error = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>"
    return f"<Response><Errors>{error}</Errors><RequestID>lab</RequestID></Response>"


@pytest.mark.parametrize("token", ["0+900", "1000.5+900"])
def test_temporary_credentials_end(region: World, token: str) -> None:
    answer = ask(region, signed(region, {"X-Amz-Security-Token": token}))
    assert answer == (400, ec2_error("RequestExpired", "Request has expired."))


@pytest.mark.parametrize("path", ["/", "/moto-api/reset", "/moto-api/seed?a=1"])
def test_who_does_not_sign_is_refused(region: World, path: str) -> None:
    text = "AWS was not able to authenticate the request: access credentials are missing"
    assert ask(region, {}, path=path) == (401, ec2_error("AuthFailure", text))
    unsigned = {"X-Amz-Target": "AmazonSSM.GetParameter"}
    status, told = ask(region, unsigned, b"{}", path)
    assert (status, json.loads(told)["__type"]) == (403, "MissingAuthenticationTokenException")


@pytest.mark.parametrize(
    ("service", "code", "text"),
    [
        ("ec2", "AuthFailure", INVALID),
        ("sts", "InvalidClientTokenId", TOKEN),
        ("iam", "InvalidClientTokenId", TOKEN),
        ("ssm", "UnrecognizedClientException", TOKEN),
        ("efs", "UnrecognizedClientException", TOKEN),
        ("service-quotas", "UnrecognizedClientException", TOKEN),
    ],
)
def test_an_unknown_key_is_refused_in_the_services_own_form(
    region: World, service: str, code: str, text: str
) -> None:
    with refused(code, text, 401 if service == "ec2" else 403):
        something(region.client(service, key=AccessKey.new()), service)


@pytest.mark.parametrize(
    ("service", "code", "text"),
    [
        ("ec2", "AuthFailure", INVALID),
        ("sts", "SignatureDoesNotMatch", MISMATCH),
        ("ssm", "InvalidSignatureException", MISMATCH),
        ("fsx", "InvalidSignatureException", MISMATCH),
    ],
)
def test_a_wrong_secret_is_refused_though_the_key_is_known(
    region: World, service: str, code: str, text: str
) -> None:
    with refused(code, text, 401 if service == "ec2" else 403):
        something(region.client(service, key=replace(KEY, secret="guess")), service)


def something(client: Any, service: str) -> None:
    operations = {
        "ec2": "describe_instances",
        "sts": "get_caller_identity",
        "iam": "list_roles",
        "ssm": "describe_instance_information",
        "service-quotas": "list_services",
    }
    getattr(client, operations.get(service, "describe_file_systems"))()


def test_a_request_is_valid_for_five_minutes(region: World) -> None:
    for age in (timedelta(minutes=6), -timedelta(minutes=6), timedelta(days=1)):
        told = ask(region, signed(region, age=age))
        assert told == (400, ec2_error("RequestExpired", "Request has expired."))
    assert ask(region, signed(region, age=timedelta(minutes=4)), b"")[0] == 401


def test_what_was_not_signed_is_not_answered(region: World) -> None:
    changed = ask(region, signed(region), NEW_VPC.replace(b"10.9", b"10.8"))
    assert changed == (401, ec2_error("AuthFailure", INVALID))
    for path in ("/?Action=CreateVpc", "/moto-api/reset"):
        assert ask(region, signed(region), path=path)[0] == 401
    assert ask(region, signed(region) | {"Host": "ec2.us-east-1.amazonaws.com"})[0] == 401
    target = {"X-Amz-Target": "AmazonSSM.GetParameter"}
    assert ask(region, signed(region) | target)[0] == 403
    for said in ("UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"):
        headers = signed(region, {"X-Amz-Content-SHA256": said})
        assert ask(region, headers, NEW_VPC.replace(b"10.9", b"10.8"))[0] == 401


def test_a_body_in_chunks_was_not_signed(region: World) -> None:
    connection = http.client.HTTPConnection(region.url.removeprefix("http://"), timeout=10)
    connection.request("POST", "/", iter([NEW_VPC]), signed(region), encode_chunked=True)
    assert connection.getresponse().status == 401
    connection.close()


def test_every_lab_has_a_key_of_its_own_and_shows_no_secret() -> None:
    one, other = AccessKey.new(), AccessKey.new()
    assert one.key_id != other.key_id
    assert one.secret != other.secret
    assert one.secret not in repr(one)


def test_the_key_opens_what_it_signs(region: World) -> None:
    for service in ("ec2", "sts", "iam", "ssm", "efs", "fsx"):
        something(region.client(service), service)
    with pytest.raises(ClientError, match="the lab's servicequotas has no ListServices"):
        something(region.client("service-quotas"), "service-quotas")
