"""A sample of the actions; `python -m tests.permissions` takes all."""

import pytest

from infra.stack.installation import Engine
from provision.permissions.actions import needed
from tests.infra.region import Region
from tests.permissions.denied import Denied, feature_of


@pytest.mark.engine
@pytest.mark.thorough
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


@pytest.mark.engine
@pytest.mark.thorough
@pytest.mark.parametrize(
    "action",
    # A change by hand that `up` takes back, and what only the real provider asks.
    ["ec2:ReplaceRoute", "ec2:DescribeInstanceCreditSpecifications"],
)
def test_what_is_needed_rarely_is_named_too(engine: Engine, here: Region, action: str) -> None:
    del engine
    texts, _ = Denied(here).run("network", action, "rare")
    assert f"is not authorized to perform: {action} on resource: " in texts[0]


@pytest.mark.engine
@pytest.mark.thorough
def test_a_removal_that_may_not_cancel_a_spot_request_names_it(
    engine: Engine, here: Region
) -> None:
    """AWS's provider cancels the request first: without it the instance goes on running."""
    del engine
    action = "ec2:CancelSpotInstanceRequests"
    found = Denied(here).outcome(action)
    assert found.verdict == "named"
    assert "cancelling EC2 Spot Fleet Request (sir-" in found.texts[0]
    assert f"is not authorized to perform: {action} on resource: " in found.texts[0]


@pytest.mark.engine
@pytest.mark.thorough
def test_the_role_for_spot_instances_is_named(engine: Engine, here: Region) -> None:
    del engine
    action = "iam:CreateServiceLinkedRole"
    texts, _ = Denied(here).run("spot", action, "usual")
    assert "AuthFailure.ServiceLinkedRoleCreationNotPermitted" in texts[0]
    assert f"let an administrator allow {action}, or create the role once" in texts[0]


def test_each_action_has_a_cluster_that_needs_it() -> None:
    features = {action: feature_of(action) for action in needed()}
    assert features["ec2:CreateVpc"] == "network"
    assert features["iam:CreateRole"] == "role"
    assert features["ssm:StartSession"] == "ssm"
    assert features["fsx:CreateFileSystem"] == "fsx-lustre"
    assert features["elasticfilesystem:CreateFileSystem"] == "efs"
    assert features["ec2:DescribeSpotInstanceRequests"] == "spot"
