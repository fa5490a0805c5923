"""The role with the printed policy: made, used, and removed whatever happens."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.errors import CloudError
from config.target import Target
from lab import fault_table
from provision.aws.clients import aws_errors, client
from smoke.least_policy import NAME, least_policy
from smoke.workplace import StepFailed, Workplace

FILE = Path("stacks/smoke-2x-efa.yaml")


class _Site(Workplace):
    """AWS, where `gpuctl iam-policy` prints `policies`."""

    policies: Any = None

    def read(self, *words: str, quiet: bool = False) -> str:
        assert words == ("iam-policy", str(FILE), "--for", "plan,up,down,run,status")
        return json.dumps(self.policies)


def allow(*actions: str) -> dict[str, Any]:
    return {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": list(actions), "Resource": "*"}],
    }


@pytest.fixture
def site(tmp_path: Path, empty_region: Target) -> _Site:
    found = _Site(None, tmp_path)
    found.policies = [allow("ec2:DescribeVpcs"), allow("ec2:CreateVpc", "ec2:CreateTags")]
    found.__dict__["target"] = empty_region
    return found


def roles(site: Workplace) -> list[str]:
    return [one["RoleName"] for one in client(site.target, "iam").list_roles()["Roles"]]


def test_commands_run_as_a_role_that_may_do_what_is_printed_alone(site: _Site) -> None:
    with least_policy(site, FILE):
        assert roles(site) == [NAME]
        own = replace(site.target, environment=site.environment)
        assert client(own, "sts").get_caller_identity()["Arn"].endswith(f"/{NAME}/ladder")
        client(own, "ec2").create_vpc(CidrBlock="10.0.0.0/16")
        with pytest.raises(CloudError) as caught, aws_errors():
            client(own, "ec2").describe_subnets()
        assert caught.value.code == "UnauthorizedOperation"
    assert (roles(site), site.environment) == ([], {})
    assert site.notes == [
        f"gpuctl runs as role {NAME}, with the 2 statements of its policy alone",
        f"role {NAME} is removed",
    ]


def test_the_role_is_removed_also_after_a_failure_and_after_a_ladder_that_was_killed(
    site: _Site,
) -> None:
    client(site.target, "iam").create_role(RoleName=NAME, AssumeRolePolicyDocument="{}")
    with pytest.raises(StepFailed), least_policy(site, FILE):
        raise StepFailed("no room", "")
    assert roles(site) == []


def test_a_removed_role_may_do_nothing(site: _Site) -> None:
    with least_policy(site, FILE):
        own = replace(site.target, environment=dict(site.environment))
    with pytest.raises(CloudError) as caught, aws_errors():
        client(own, "ec2").describe_vpcs()
    assert caught.value.code == "UnauthorizedOperation"


def test_who_may_make_no_role_runs_the_step_with_his_own_permissions(site: _Site) -> None:
    folder = site.target.state.parents[1]
    (folder / "policy.json").write_text(json.dumps(allow("ec2:*", "iam:List*", "sts:*")))
    fault_table.write(folder / "faults.json", {"policy": (str(folder / "policy.json"),)})
    with least_policy(site, FILE):
        assert site.environment == {}
    assert site.notes == ["the printed policy is not tried: AWS gives you no role (AccessDenied)"]
