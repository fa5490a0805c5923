"""Session Manager, and the IAM roles that it requires of instances.

An instance is online when it runs, has booted, and its instance profile's role allows the actions
of its agent: the role's policies, and its permissions boundary if it has one ("Step 2: Verify or
add instance permissions for Session Manager", Systems Manager User Guide, 2026-11-20). Error codes
and texts are AWS's.
"""

import json
import secrets
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.models import ec2_backends
from moto.iam import urls as iam_urls
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.exceptions import MalformedPolicyDocument, NotFoundException
from moto.iam.models import AWSManagedPolicy, IAMBackend, iam_backends
from moto.ssm.responses import SimpleSystemManagerResponse

from config.errors import InputError
from lab.access_key import ADMINISTRATOR
from lab.api.errors import Refusal, bad_value
from lab.api.roles import role_ruling
from lab.authorization.checks import USER
from lab.authorization.policy import read_policy

MANAGED_POLICY = "AmazonSSMManagedInstanceCore"
DOCUMENT = "AWS-StartSSHSession"

_NEEDED = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)


class IamBackend(IAMBackend):  # type: ignore[misc]  # moto is untyped here
    """IAM with the only AWS managed policy that gpuctl attaches.

    It refuses policies that the lab cannot enforce, and boundaries that do not exist.
    """

    _url_module: ClassVar[SimpleNamespace] = SimpleNamespace(
        url_bases=iam_urls.url_bases, url_paths=iam_urls.url_paths
    )

    def _init_aws_policies(self) -> list[Any]:
        data = _managed_policy()
        return [AWSManagedPolicy.from_data(MANAGED_POLICY, self.account_id, self.region_name, data)]

    def create_role(self, role_name: str, *given: Any, **named: Any) -> Any:
        """Create the role; its boundary is the third parameter after the name."""
        self._check_boundary(named.get("permissions_boundary", (*given, None, None, None)[2]))
        return super().create_role(role_name, *given, **named)

    def put_role_permissions_boundary(self, role_name: str, permissions_boundary: str) -> None:
        """Set the role's boundary."""
        self._check_boundary(permissions_boundary)
        super().put_role_permissions_boundary(role_name, permissions_boundary)

    def _check_boundary(self, arn: str | None) -> None:
        # AWS's text for AttachRolePolicy (github.com/pulumi/pulumi/issues/7419, 2026-11-26); that
        # for a boundary is not known.
        if arn and arn not in self.managed_policies:
            raise NotFoundException(f"Policy {arn} does not exist or is not attachable.")

    def put_role_policy(self, role_name: str, policy_name: str, policy_json: str) -> None:
        """Add an inline policy to the role, or replace it."""
        super().put_role_policy(role_name, policy_name, _enforceable(policy_json))

    def create_policy(
        self, description: str, path: str, policy_document: str, *others: Any, **named: Any
    ) -> Any:
        """Create a managed policy."""
        text = _enforceable(policy_document)
        return super().create_policy(description, path, text, *others, **named)


def _enforceable(document: str) -> str:
    """Return the document if the lab can enforce it."""
    try:
        read_policy(document)
    except InputError as error:
        raise MalformedPolicyDocument(str(error)) from None
    return document


@cache
def _managed_policy() -> dict[str, Any]:
    """Return moto's data of that policy; they are in a text of all, which takes 0.1 s to read."""
    data: dict[str, Any] = json.loads(aws_managed_policies_data)[MANAGED_POLICY]
    return data


def profile_of(account: str, named: dict[str, Any] | None) -> Any | None:
    """Return a launch's instance profile, None if it names none; Refusal if it is unknown."""
    if not named:
        return None
    name = named.get("Name") or str(named.get("Arn")).rpartition("/")[2]
    known = iam_backends[account]["aws"].instance_profiles
    if name not in known:
        raise _unknown_profile(name)
    return known[name]


def check_profile(account: str, named: dict[str, Any] | None, delay_s: float) -> None:
    """Refuse a launch with an unknown profile, or with one that is younger than `delay_s`."""
    profile = profile_of(account, named)
    if profile and (utcnow() - profile.create_date).total_seconds() < delay_s:
        raise _unknown_profile(profile.name)


def _unknown_profile(name: str) -> Refusal:
    return bad_value(
        f"Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance"
        " Profile name"
    )


class SessionActions(SimpleSystemManagerResponse):  # type: ignore[misc]  # moto is untyped here
    """moto's Systems Manager, with sessions to the lab's instances."""

    def start_session(self) -> ActionResult:
        """Answer StartSession. Only `lab.session_manager_plugin` understands the stream's URL."""
        target = self._get_param("Target")
        if self._get_param("DocumentName") != DOCUMENT:
            raise JsonRESTError("InvalidDocument", f"The lab has the document {DOCUMENT} alone.")
        (port,) = (self._get_param("Parameters") or {}).get("portNumber", ["22"])
        instance = self._online().get(target)
        if instance is None:
            raise JsonRESTError("TargetNotConnected", f"{target} is not connected.")
        # AWS's sessions begin with their user's name too.
        other = self.headers.get("X-Amz-Security-Token") == ADMINISTRATOR
        session = f"{ADMINISTRATOR if other else USER}-{secrets.token_hex(9)}"
        return ActionResult(
            {
                "SessionId": session,
                "TokenValue": secrets.token_urlsafe(32),
                "StreamUrl": f"lab://{instance.private_ip}:{port}/{session}",
            }
        )

    def terminate_session(self) -> ActionResult:
        """Answer TerminateSession and do nothing: a session ends with its connection."""
        return ActionResult({"SessionId": self._get_param("SessionId")})

    def describe_instance_information(self) -> ActionResult:
        """Answer DescribeInstanceInformation with the instances that are online."""
        named = {
            value
            for filter_ in self._get_param("Filters") or ()
            if filter_["Key"] == "InstanceIds"
            for value in filter_["Values"]
        }
        return ActionResult(
            {
                "InstanceInformationList": [
                    {
                        "InstanceId": instance_id,
                        "PingStatus": "Online",
                        "LastPingDateTime": utcnow(),
                        "PlatformType": "Linux",
                    }
                    for instance_id in self._online()
                    if not named or instance_id in named
                ]
            }
        )

    def _online(self) -> dict[str, Any]:
        backend = ec2_backends[self.current_account][self.region]
        with backend.lab.lock:
            return {
                instance.id: instance
                for instance in backend.all_instances()
                if instance.state == "running"
                and _may_connect(backend, instance)
                and backend.lab.machines.has_booted(instance.id)
            }


def _may_connect(backend: Any, instance: Any) -> bool:
    """Return whether the role of the instance's profile permits sessions."""
    try:
        profile = profile_of(
            backend.account_id, instance.launch.parameters.get("IamInstanceProfile")
        )
    except Refusal:
        return False
    iam = iam_backends[backend.account_id]["aws"]
    return any(
        all(role_ruling(iam, role, action).decision == "allowed" for action in _NEEDED)
        for role in (profile.roles if profile else ())
    )
