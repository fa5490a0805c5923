"""The policy of the lab's credentials: refusals as AWS words them, and IAM's simulation of it.

`gpuctl lab fault set policy FILE` names the file, `… set boundary FILE` that of the credentials'
permissions boundary. Each request reads them, and they apply from the next request on. Requests
whose session token is ADMINISTRATOR are those of another person. Those of a role's session may do
what the role's own policies allow.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.efs.models import efs_backends
from moto.fsx.models import fsx_backends
from moto.iam.models import iam_backends

from lab.access_key import ADMINISTRATOR
from lab.api.error_answers import ErrorAnswer, error_answer
from lab.api.errors import Refusal
from lab.api.faults import Faults
from lab.api.launch import template_data
from lab.api.roles import permissions, role_of, role_ruling, session_of
from lab.authorization.checks import LINKED_ROLE, USER, Account, Check, Tags, checks
from lab.authorization.policy import Policy, Ruling, decide, read_policy
from lab.fault_table import BOUNDARY, POLICY
from lab.requests.wire import Request

CALLER = f"arn:aws:sts::{DEFAULT_ACCOUNT_ID}:user/{USER}"
"""Whom moto's GetCallerIdentity names."""

ALL = read_policy('{"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}')


class Authorization:
    """The decisions about requests, by the policy that is set; everything is allowed without."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def refusal(
        self, request: Request, environ: Mapping[str, Any], service: str, region: str
    ) -> ErrorAnswer | None:
        """Return AWS's response to a request that the policy does not allow, else None."""
        needed = checks(request, region, _account(region))
        return self.decision(needed, environ, service)

    def decision(
        self, needed: Iterable[Check], environ: Mapping[str, Any], service: str
    ) -> ErrorAnswer | None:
        """Return AWS's response if the policy does not allow one of the checks, else None."""
        session = session_of(environ)
        policy, boundary = self._policies(session)
        if not (policy or boundary) or environ.get("HTTP_X_AMZ_SECURITY_TOKEN") == ADMINISTRATOR:
            return None
        for check in needed:
            ruling = decide(policy or ALL, boundary, check.action, check.resource, check.context)
            if ruling.decision != "allowed":
                return _answer(service, check, ruling, session.arn if session else CALLER)
        return None

    def _policies(self, session: Any) -> tuple[Policy | None, Policy | None]:
        """Return the policy and the boundary of a role's session, or of the lab's key."""
        if session is None:
            return self._policy(POLICY), self._policy(BOUNDARY)
        role = role_of(session)
        if role is None:
            return Policy(()), None
        return permissions(iam_backends[DEFAULT_ACCOUNT_ID]["aws"], role)

    def simulation(self, request: Request) -> bytes | None:
        """Return the body of the answer to SimulatePrincipalPolicy, None for another request.

        A role of the account is simulated with its own policies and boundary; every other principal
        counts as the lab's credentials.
        """
        if (request.service, request.name) != ("iam", "SimulatePrincipalPolicy"):
            return None
        given = request.parameters
        entries = given.get("ContextEntries", ())
        context = {entry["ContextKeyName"]: entry["ContextKeyValues"][0] for entry in entries}
        policy, boundary = self._policy(POLICY) or ALL, self._policy(BOUNDARY)
        iam = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
        arn = given.get("PolicySourceArn")
        role = next(
            (candidate for candidate in list(iam.roles.values()) if candidate.arn == arn), None
        )
        members = "".join(
            _result(
                action,
                resource,
                role_ruling(iam, role, action, resource)
                if role
                else decide(policy, boundary, action, resource, context),
            )
            for action in given["ActionNames"]
            for resource in given.get("ResourceArns") or ("*",)
        )
        name = "SimulatePrincipalPolicy"
        results = (
            f"<EvaluationResults>{members}</EvaluationResults><IsTruncated>false</IsTruncated>"
        )
        return (
            f'<{name}Response xmlns="https://iam.amazonaws.com/doc/2010-05-08/">'
            f"<{name}Result>{results}</{name}Result></{name}Response>"
        ).encode()

    def _policy(self, fault: str) -> Policy | None:
        given = self._faults.arguments(fault)
        if given is None:
            return None
        file = Path(given[0])
        return _read(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read(file: Path, changed: int) -> Policy:
    """Return the file's policy; `changed` is the time of its last change."""
    return read_policy(file.read_text())


def _result(action: str, resource: str, ruling: Ruling) -> str:
    return (
        f"<member><EvalActionName>{escape(action)}</EvalActionName>"
        f"<EvalResourceName>{escape(resource)}</EvalResourceName>"
        f"<EvalDecision>{ruling.decision}</EvalDecision></member>"
    )


def _answer(service: str, check: Check, ruling: Ruling, user: str) -> ErrorAnswer:
    """Return the refusal.

    Texts: "Troubleshoot access denied error messages", IAM User Guide
    (https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html); EC2 puts its
    own sentence before it (2026-11-23, 2026-11-26).
    """
    if (service, check.action) == ("ec2", LINKED_ROLE):
        # https://github.com/determined-ai/determined/issues/1830 (2026-11-25)
        code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
        text = (
            "The provided credentials do not have permission to create the service-linked role for"
            " EC2 Spot Instances."
        )
        return error_answer(service, code, text, "403 Forbidden")
    of = "permissions boundary" if ruling.bounded else "identity-based policy"
    article = "a" if ruling.bounded else "an"
    why = (
        f"with an explicit deny in {article} {of}"
        if ruling.decision == "explicitDeny"
        else f"because no {of} allows the {check.action} action"
    )
    text = (
        f"User: {user} is not authorized to perform: {check.action} on resource:"
        f" {check.resource} {why}"
    )
    if service == "ec2":
        text = f"You are not authorized to perform this operation. {text}"
        return error_answer(service, "UnauthorizedOperation", text, "403 Forbidden")
    code = "AccessDenied" if service in ("iam", "sts", "s3") else "AccessDeniedException"
    return error_answer(service, code, text, "400 Bad Request" if "Ex" in code else "403 Forbidden")


def _account(region: str) -> Account:
    number = DEFAULT_ACCOUNT_ID
    ec2, iam = ec2_backends[number][region], iam_backends[number]["aws"]
    files = (efs_backends[number][region], fsx_backends[number][region])

    def role(kind: str, name: str) -> str | None:
        known = iam.roles.values() if kind == "role" else iam.instance_profiles.values()
        return next((str(role.arn) for role in list(known) if role.name == name), None)

    def launch(named: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return template_data(ec2, named) if named else {}
        except Refusal:
            return {}  # EC2 reports that there is no such template

    def boundary(name: str) -> str | None:
        roles = (role for role in list(iam.roles.values()) if role.name == name)
        return next((role.permissions_boundary_arn for role in roles), None)

    def passed(profile: str) -> str | None:
        profiles = (
            candidate
            for candidate in list(iam.instance_profiles.values())
            if candidate.name == profile
        )
        return next((str(role.arn) for profile in profiles for role in profile.roles), None)

    tags = partial(_tags, ec2, files)
    return Account(number, tags, launch, role, boundary, passed)


def _tags(ec2: Any, files: tuple[Any, Any], resource: str) -> Tags | None:
    """Return the tags of a resource by its id, or by `type/name`; None if there is none."""
    if resource.startswith(("fs-", "fsmt-")):
        return _file_tags(files, resource)
    owner: Any = None
    kind, _, name = resource.partition("/")
    if name:
        groups = ec2.placement_groups if kind == "placement-group" else ec2.key_pairs
        owner = groups.get(name)
    elif resource.startswith("eipassoc-"):
        owner = next(
            (address for address in list(ec2.addresses) if address.association_id == resource), None
        )
    elif resource.startswith("rtbassoc-"):
        tables = list(ec2.route_tables.values())
        owner = next((table for table in tables if resource in table.all_associations_ids), None)
    else:
        return ec2.tags.get(resource, {}) if _exists(ec2, resource) else None
    return None if owner is None else ec2.tags.get(owner.id, {})


def _file_tags(files: tuple[Any, Any], resource: str) -> Tags | None:
    """Return the tags of a file system of EFS or FSx, also by the id of a mount target."""
    efs, fsx = files
    if resource in efs.mount_targets_by_id:
        resource = efs.mount_targets_by_id[resource].file_system_id
    for backend, systems in ((efs, efs.file_systems_by_id), (fsx, fsx.file_systems)):
        if resource in systems:
            named = resource if backend is efs else systems[resource].resource_arn
            return {tag["Key"]: tag["Value"] for tag in backend.list_tags_for_resource(named)}
    return None


def _exists(ec2: Any, resource: str) -> bool:
    """Return whether EC2 has a resource of this id. Images have tags in no table."""
    kind = resource.partition("-")[0]
    if kind in ("ami", "snap", "vol"):
        return True
    if kind == "sir":
        return any(request.id == resource for request in ec2.spot_requests())
    return resource in ec2.tags or any(resource in table for table in _tables(ec2))


def _tables(ec2: Any) -> list[Any]:
    names = (
        "vpcs", "subnets", "groups", "enis", "internet_gateways", "nat_gateways", "route_tables",
        "launch_templates", "capacity_reservations", "vpc_end_points",
    )  # fmt: skip
    tables: list[Any] = []
    for name in names:
        table = getattr(ec2, name, {})
        # moto keeps subnets and groups in a table for each zone and VPC.
        tables += [table, *(row for row in list(table.values()) if isinstance(row, dict))]
    return tables
