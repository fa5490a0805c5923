"""A sample of the actions; `python -m tests.permissions` takes all."""

from collections.abc import Iterator

import pytest

from infra.pulumi_engine.installation import Engine
from provision.permissions.actions import needed
from tests.infra.conftest import engine  # noqa: F401  fixtures are found by import
from tests.infra.region import region
from tests.permissions.denied import Denied, Outcome, feature_of

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def denied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Denied]:
    state = tmp_path_factory.mktemp("denied")
    (state / "requests").mkdir()
    with region(state) as here:
        yield Denied(here)


@pytest.mark.parametrize("action", ["ec2:DescribeSubnets", "ec2:DeleteVpc"])
def test_the_command_that_needs_an_action_names_it(
    engine: Engine,  # noqa: F811
    denied: Denied,
    action: str,
) -> None:
    del engine  # it exists
    found = denied.outcome(action)
    assert found.verdict == "named"
    assert f"is not authorized to perform: {action} on resource: " in found.texts[0]


def test_what_no_command_calls_is_not_called(
    engine: Engine,  # noqa: F811
    denied: Denied,
) -> None:
    del engine  # it exists
    action = "ec2:GetConsoleOutput"  # of machines that boot
    assert denied.outcome(action) == Outcome(action, "not called", ())


def test_each_action_has_a_cluster_that_needs_it() -> None:
    features = {action: feature_of(action) for action in needed()}
    assert features["ec2:CreateVpc"] == "network"
    assert features["iam:CreateRole"] == "ssm"
    assert features["fsx:CreateFileSystem"] == "fsx-lustre"
    assert features["elasticfilesystem:CreateFileSystem"] == "efs"
    assert features["ec2:DescribeSpotInstanceRequests"] == "spot"
