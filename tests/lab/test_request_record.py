"""The lab records the requests that it receives in a folder, if there is one."""

import base64
import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.core.utils import get_service_model

from lab.api.server import ApiServer
from lab.requests.__main__ import main
from lab.requests.recorder import readable
from tests.lab.world import World
from tests.labs import KEY

TEXT = "#cloud-config\npackages: [openmpi-bin]\n"


def shown(operation: str, parameters: dict[str, Any], service: str = "ec2") -> Any:
    return readable(get_service_model(service).operation_model(operation).input_shape, parameters)


def test_requests_are_recorded_in_order_while_there_is_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "requests"
    with ApiServer(KEY) as api:
        api.record_requests(folder)
        ec2 = World(api.url).ec2
        assert not folder.exists()
        folder.mkdir()
        ec2.describe_vpcs(Filters=[{"Name": "tag-key", "Values": ["a"]}])
        with pytest.raises(ClientError):  # a refused request is none that AWS would receive
            ec2.describe_vpcs(Filters=[{"Name": "colour", "Values": ["a"]}])
        World(api.url).client("sts", "us-west-2").get_caller_identity()
        found = {file.name: json.loads(file.read_text()) for file in sorted(folder.iterdir())}
    first, *_, last = found
    assert first == "0001-ec2-DescribeVpcs.json"
    assert found[first] == {
        "service": "ec2",
        "operation": "DescribeVpcs",
        "region": "us-east-1",
        "parameters": {"Filters": [{"Name": "tag-key", "Values": ["a"]}]},
    }
    assert last.endswith("-sts-GetCallerIdentity.json")
    assert found[last]["region"] == "us-west-2"
    assert KEY.secret not in "".join(map(str, found.values()))


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_user_data_are_lines_and_what_is_sensitive_is_left_out(
    compress: Callable[[bytes], bytes],
) -> None:
    encoded = base64.b64encode(compress(TEXT.encode())).decode()
    assert shown("RunInstances", {"UserData": encoded, "MinCount": 1}) == {
        "UserData": ["#cloud-config", "packages: [openmpi-bin]"],
        "MinCount": 1,
    }
    template = {"LaunchTemplateData": {"UserData": encoded}}
    assert shown("CreateLaunchTemplate", template) == {
        "LaunchTemplateData": {"UserData": ["#cloud-config", "packages: [openmpi-bin]"]}
    }
    secret = {"Name": "a", "Value": "hunter2", "Type": "SecureString"}
    assert shown("PutParameter", secret, "ssm")["Value"] == "sensitive"


def test_times_and_keys_are_text() -> None:
    end = {"EndDate": datetime(2026, 11, 23, tzinfo=UTC), "InstanceCount": 2}
    assert shown("CreateCapacityReservation", end)["EndDate"] == "2026-11-23T00:00:00+00:00"
    key = {"KeyName": "a", "PublicKeyMaterial": b"ssh-ed25519 AAAA"}
    assert shown("ImportKeyPair", key)["PublicKeyMaterial"] == "ssh-ed25519 AAAA"


def test_a_folder_that_exists_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", str(tmp_path), "--lab-name", "t-none"]) == 2
    assert capsys.readouterr().err == f"{tmp_path} exists; name a folder that does not exist\n"
