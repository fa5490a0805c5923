"""A sample of the actions; `python -m tests.permissions` takes all."""

import pytest

from infra.pulumi_engine.installation import Engine
from provision.permissions.actions import needed
from tests.infra.region import Region
from tests.permissions.denied import Denied, feature_of


@pytest.mark.engine
@pytest.mark.parametrize("action", ["ec2:DescribeSubnets", "ec2:DeleteVpc"])
def test_the_command_that_needs_an_action_names_it(
    engine: Engine,
    here: Region,
    action: str,
) -> None:
    del engine  # it exists
    found = Denied(here).outcome(action)
    assert found.verdict == "named"
    assert f"is not authorized to perform: {action} on resource: " in found.texts[0]


def test_each_action_has_a_cluster_that_needs_it() -> None:
    features = {action: feature_of(action) for action in needed()}
    assert features["ec2:CreateVpc"] == "network"
    assert features["iam:CreateRole"] == "ssm"
    assert features["fsx:CreateFileSystem"] == "fsx-lustre"
    assert features["elasticfilesystem:CreateFileSystem"] == "efs"
    assert features["ec2:DescribeSpotInstanceRequests"] == "spot"
