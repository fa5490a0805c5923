"""The printed least policy, tried: a role that may do nothing else runs gpuctl's commands."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from config.errors import CloudError, GpuctlError
from config.polling import Timeouts, retry
from provision.aws.clients import DENIED, aws_errors, client
from smoke.workplace import Workplace, uninterrupted

NAME = "gpuctl-aws-smoke"
"""The role and its policies. Who has it already, left it there by a ladder that was killed."""

SESSION = "ladder"
_COMMANDS = "plan,up,down,run,status"

PATIENCE = Timeouts(60, 3)
"""How long IAM may take until a new role works: "Changes that I make are not always immediately
visible" (IAM User Guide, troubleshoot_general.html, 2026-11-26)."""


@contextmanager
def least_policy(site: Workplace, file: Path) -> Iterator[None]:
    """Let gpuctl's commands run with what `gpuctl iam-policy` prints for the cluster file.

    On AWS they run as a role that is made for that, and removed at the end. Who may not make or
    assume roles runs them with his own permissions, and a note says so. In a lab, whose commands
    have one key, the role is made and removed too, and the policy is that of the lab's key.
    """
    printed = json.loads(site.read("iam-policy", str(file), "--for", _COMMANDS, quiet=True))
    policies = printed if isinstance(printed, list) else [printed]
    iam = client(site.target, "iam")
    with ExitStack() as stack:
        try:
            role = _make_role(iam, site.who.arn)
            stack.callback(_end, site, iam)
            environment = _credentials(site, iam, role, policies)
        except CloudError as error:
            if error.code not in DENIED:
                raise
            site.note(f"the printed policy is not tried: AWS gives you no role ({error.code})")
        else:
            count = sum(len(policy["Statement"]) for policy in policies)
            site.note(
                f"gpuctl runs as role {NAME}, with the {count} statements of its policy alone"
            )
            limited = _in_lab(site, policies) if site.lab else _as_role(site, environment)
            stack.enter_context(limited)
        yield


def _end(site: Workplace, iam: Any) -> None:
    with uninterrupted():
        _remove_role(iam)
        site.note(f"role {NAME} is removed")


def owner(site: Workplace) -> tuple[str, ...]:
    """Return the option with which `gpuctl down` removes a cluster of the role."""
    if site.lab:
        return ()
    return ("--owner", f"arn:aws:sts::{site.who.account}:assumed-role/{NAME}/{SESSION}")


def _make_role(iam: Any, person: str) -> str:
    """Create the role, which only the person may assume; return its ARN."""
    _remove_role(iam)
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": person}, "Action": "sts:AssumeRole"}
        ],
    }
    with aws_errors():
        role = iam.create_role(RoleName=NAME, AssumeRolePolicyDocument=json.dumps(trust))["Role"]
    return str(role["Arn"])


def _remove_role(iam: Any) -> None:
    """Remove the role with its policies, if it exists."""
    try:
        with aws_errors():
            for name in iam.list_role_policies(RoleName=NAME)["PolicyNames"]:
                iam.delete_role_policy(RoleName=NAME, PolicyName=name)
            iam.delete_role(RoleName=NAME)
    except CloudError as error:
        if error.code != "NoSuchEntity":
            raise


def _credentials(
    site: Workplace, iam: Any, role: str, policies: list[dict[str, Any]]
) -> dict[str, str]:
    """Give the role its policies; return the variables of an hour as it, once EC2 obeys them."""
    for number, policy in enumerate(policies):
        with aws_errors():
            iam.put_role_policy(
                RoleName=NAME, PolicyName=f"{NAME}-{number}", PolicyDocument=json.dumps(policy)
            )
    return retry(lambda: _assume(site, role), _is_denied, PATIENCE)


def _is_denied(error: GpuctlError) -> bool:
    return isinstance(error, CloudError) and error.code in DENIED


def _assume(site: Workplace, role: str) -> dict[str, str]:
    with aws_errors():
        answer = client(site.target, "sts").assume_role(RoleArn=role, RoleSessionName=SESSION)
    credentials = answer["Credentials"]
    variables = {
        "AWS_ACCESS_KEY_ID": credentials["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": credentials["SecretAccessKey"],
        "AWS_SESSION_TOKEN": credentials["SessionToken"],
    }
    with aws_errors():
        client(replace(site.target, environment=variables), "ec2").describe_vpcs()
    return variables


@contextmanager
def _as_role(site: Workplace, environment: dict[str, str]) -> Iterator[None]:
    site.environment = environment
    try:
        yield
    finally:
        site.environment = {}


@contextmanager
def _in_lab(site: Workplace, policies: list[dict[str, Any]]) -> Iterator[None]:
    file = site.folder / "policy.json"
    statements = [statement for policy in policies for statement in policy["Statement"]]
    file.write_text(json.dumps({"Version": "2012-10-17", "Statement": statements}))
    site.run("lab", "fault", "set", "policy", str(file))
    try:
        yield
    finally:
        with uninterrupted():
            site.run("lab", "fault", "clear", "policy")
