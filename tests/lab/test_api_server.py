"""The server: which services, which images, and no answer that a client cannot read."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from tests.lab.world import World, refused, world
from tests.labs import KEY

pytestmark = pytest.mark.slow

PARAMETERS = {
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id": (
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04)",
        "/dev/sda1",
    ),
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id": (
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)",
        "/dev/sda1",
    ),
    "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id": (
        "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server",
        "/dev/sda1",
    ),
    "/aws/service/debian/release/12/latest/amd64": ("debian-12-amd64", "/dev/xvda"),
}


@pytest.fixture
def region() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_every_public_parameter_names_an_image(region: World, parameter: str) -> None:
    name, root = PARAMETERS[parameter]
    for place in ("us-east-1", "eu-west-1"):
        value = region.client("ssm", place).get_parameter(Name=parameter)["Parameter"]["Value"]
        (image,) = region.client("ec2", place).describe_images(ImageIds=[value])["Images"]
        assert image["Name"].startswith(name)
        assert image["RootDeviceName"] == root
        assert image["Architecture"] == "x86_64"


def test_images_are_the_labs_alone(region: World) -> None:
    assert len(region.ec2.describe_images()["Images"]) == 6
    assert len(region.ec2.describe_images(Owners=["self"])["Images"]) == 1


def test_who_am_i(region: World) -> None:
    assert region.client("sts").get_caller_identity()["Account"] == "123456789012"


def test_a_service_that_the_lab_lacks(region: World) -> None:
    with refused("UnknownOperationException", "the lab has no service logs"):
        region.client("logs").describe_log_groups()


def test_an_action_that_nobody_implemented(region: World) -> None:
    with pytest.raises(ClientError) as caught:
        region.ec2.describe_capacity_reservation_topology()
    assert caught.value.response["Error"]["Code"] == "InvalidAction"


def test_a_new_server_is_a_new_world() -> None:
    with world() as first:
        first.run()
    with world() as second:
        assert second.ec2.describe_instances()["Reservations"] == []


def test_the_api_alone_as_a_process() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.api"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **KEY.environment},
    )
    with process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert World(url).run()
        process.terminate()
        assert process.wait(60) == 0


FIRST_REQUESTS = """
import sys
from tests.lab.world import world

with world() as made:
    before = set(sys.modules)
    made.client("sts").get_caller_identity()
    made.client("iam").list_roles()
    made.client("efs").describe_file_systems()
    made.client("fsx").describe_file_systems()
    made.client("ssm").describe_instance_information()
    made.client("s3").create_bucket(Bucket="team")
    made.run()
    print([name for name in set(sys.modules) - before if name.startswith(("moto", "lab"))])
"""


def test_no_request_imports_a_module() -> None:
    """Two first ones at once, of moto's that import each other, failed by a deadlock."""
    command = [sys.executable, "-c", FIRST_REQUESTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_api_alone_wants_a_key_too() -> None:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-m", "lab.api"]
    done = subprocess.run(command, capture_output=True, text=True, env=bare, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith(
        "error: AWS_ACCESS_KEY_ID is not set; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to"
        " what clients of this API sign with\n"
    )
