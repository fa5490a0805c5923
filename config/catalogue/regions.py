"""AWS's regions and their zones, for completion alone: accounts have others enabled."""

from collections.abc import Mapping

ZONES: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-3", "ap-south-1", "ap-south-2"),
            *("ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-4"),
            *("ap-southeast-5", "ap-southeast-6", "ap-southeast-7", "ca-west-1", "eu-central-1"),
            *("eu-central-2", "eu-north-1", "eu-south-1", "eu-south-2", "eu-west-1", "eu-west-2"),
            *("eu-west-3", "il-central-1", "me-central-1", "me-south-1", "mx-central-1"),
            *("sa-east-1", "us-east-2"),
        ),
        "abc",
    ),
    "ap-northeast-1": "acd",
    "ap-northeast-2": "abcd",
    "ca-central-1": "abd",
    "us-east-1": "abcdef",
    "us-west-1": "ab",
    "us-west-2": "abcd",
}
"""The letters of the zones by region: EC2's DescribeAvailabilityZones, as kept in moto 5.2.5."""
