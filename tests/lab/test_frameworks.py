"""The image with the frameworks: chosen by its AMI, made only for those that ask for it."""

import boto3
import pytest

from config.progress import silent
from lab import amis, lifecycle
from lab.api.server import ApiServer
from lab.images import image
from tests.labs import KEY

AMI = "ami-03a850a064635dbc8"


def test_a_lab_starts_without_it() -> None:
    assert image.OF_THE_LAB == ("dlami", "stock")


def test_a_cluster_that_names_it_has_it_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(flavour: image.Flavour, report: object) -> None:
        made.append(flavour)

    monkeypatch.setattr(image, "ensure_image", make)
    lifecycle.ensure_image(AMI, "us-east-1", silent)
    lifecycle.ensure_image(AMI, "us-west-2", silent)  # another id there
    lifecycle.ensure_image("dlami-ubuntu-24.04", "us-east-1", silent)
    assert made == ["frameworks"]


def test_its_recipe_is_dlamis_and_the_frameworks() -> None:
    dlami, frameworks = image._recipe("dlami"), image._recipe("frameworks")
    assert frameworks[: len(dlami)] == dlami
    assert "horovod==0.28.1" in frameworks


def test_the_api_offers_it_as_an_image_of_the_account() -> None:
    with ApiServer(KEY) as api:
        ec2 = boto3.client(
            "ec2",
            region_name="us-east-1",
            endpoint_url=api.url,
            aws_access_key_id=KEY.key_id,
            aws_secret_access_key=KEY.secret,
        )
        (told,) = ec2.describe_images(ImageIds=[AMI])["Images"]
    assert told["Name"] == "gpuctl lab frameworks"
    assert told["OwnerId"] == "123456789012"
    assert not told["Public"]
    assert amis.flavour(AMI, "us-east-1") == "frameworks"
