"""The actions and resources that AWS checks for one request, with their condition keys.

Sources: the Service Authorization Reference (config/catalogue/iam_actions.py), "Grant permission to
tag Amazon EC2 resources during creation" in the EC2 User Guide, and what EFS's and FSx's API
references say about further permissions (read 2026-11-23).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from config.catalogue.iam_actions import ACTION_SCOPES, LINKED_ROLES, ActionScope, resource_arn
from lab.requests.wire import NAMES, Request

Tags = Mapping[str, str]

ALWAYS = frozenset({"sts:GetCallerIdentity"})
"""What needs no permission (STS API reference)."""

_SIGNED = {name: signed for signed, name in NAMES.items()}

_TYPES = {
    "ami": "image", "cr": "capacity-reservation", "eipalloc": "elastic-ip",
    "eipassoc": "elastic-ip", "eni": "network-interface", "i": "instance",
    "igw": "internet-gateway", "key": "key-pair", "lt": "launch-template", "nat": "natgateway",
    "pg": "placement-group", "rtb": "route-table", "rtbassoc": "route-table",
    "sg": "security-group", "sir": "spot-instances-request", "snap": "snapshot",
    "subnet": "subnet", "vol": "volume", "vpc": "vpc", "vpce": "vpc-endpoint",
}  # fmt: skip
_ID = re.compile(rf"({'|'.join(_TYPES)})-[0-9a-f]{{8,17}}")


USER, USER_ID = "moto", "AKIAIOSFODNN7EXAMPLE"
"""The name and id of the lab's user, as moto's GetCallerIdentity has them."""

LINKED_ROLE = "iam:CreateServiceLinkedRole"
"""The action that an account's first spot instance or file system needs.

The lab's account never has one of the roles, so there each of them needs it."""


@dataclass(frozen=True)
class Check:
    """One action on one resource; `context` has the values of condition keys."""

    action: str
    resource: str = "*"
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Account:
    """What the checks need to know of the account: its number, and where tags are.

    `tags` returns the tags of a resource by its id or name, None if there is no such resource.
    `launch` returns the parameters of a launch template's version. `role` returns the ARN of a
    role or instance profile by its name, `boundary` the ARN of a role's permissions boundary, None
    if it has none. `passed` returns the ARN of the role in an instance profile.
    """

    number: str
    tags: Callable[[str], Tags | None]
    launch: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    role: Callable[[str, str], str | None]
    boundary: Callable[[str], str | None]
    passed: Callable[[str], str | None]


def checks(request: Request, region: str, account: Account) -> Iterator[Check]:
    """Yield everything that must be allowed for the request to be."""
    action = f"{_SIGNED.get(request.service, request.service)}:{request.name}"
    if action in ALWAYS:
        return
    view = _View(request, action, f"{region}:{account.number}", account)
    services = {
        "ec2": view.of_ec2, "efs": view.of_efs, "fsx": view.of_fsx, "iam": view.of_iam,
        "ssm": view.of_ssm,
    }  # fmt: skip
    regional = {"aws:RequestedRegion": region, "aws:userid": USER_ID, "aws:username": USER}
    for check in services.get(request.service, view.plain)():
        yield Check(check.action, check.resource, {**regional, **check.context})


@dataclass(frozen=True)
class _View:
    """A request, with the place of its resources in an ARN."""

    request: Request
    action: str
    place: str
    account: Account

    def plain(self) -> Iterator[Check]:
        """Yield the action alone, as for all requests that only read."""
        yield Check(self.action)

    def of_ec2(self) -> Iterator[Check]:
        """Yield the checks of a request to EC2."""
        name, given = self.request.name, self.request.parameters
        if name in ("CreateTags", "DeleteTags"):
            tags = _request_tags(given.get("Tags", ()))
            for resource in given.get("Resources", ()):
                yield from self._existing(self.action, resource, _TYPES.values(), tags)
            return
        kinds = ACTION_SCOPES.get(self.action)
        if kinds is None:
            yield from self.plain()
            return
        if name == "RunInstances":
            template = self.account.launch(given.get("LaunchTemplate") or {})
            given = {**template, **given, "template": template}
        yield from self._made(kinds, given)
        if given.get("InstanceMarketOptions", {}).get("MarketType") == "spot":
            yield self._linked_role("spot")
        for resource in sorted(set(_named(name, given))):
            yield from self._existing(self.action, resource, kinds.changes + kinds.uses)
        if profile := given.get("IamInstanceProfile"):
            name = profile.get("Name") or str(profile.get("Arn")).rpartition("/")[2]
            yield from self._passed(self.account.passed(name))

    def _made(self, kinds: ActionScope, given: Mapping[str, Any]) -> Iterator[Check]:
        """Yield the checks of new resources, and of the tags that they get."""
        specifications = [
            *given.get("template", {}).get("TagSpecifications", ()),
            *given.get("TagSpecifications", ()),
        ]
        tags: dict[str, dict[str, str]] = {}
        for specification in specifications:
            of_kind = tags.setdefault(specification["ResourceType"], {})
            of_kind.update(_request_tags(specification.get("Tags", ())))
        for kind in {*kinds.makes, *(kind for kind in tags if kind in kinds.uses)}:
            yield Check(self.action, self._arn(kind), tags.get(kind, {}))
        for kind, texts in tags.items():
            creation = {"ec2:CreateAction": self.request.name}
            yield Check("ec2:CreateTags", self._arn(kind), {**texts, **creation})

    def _existing(
        self, action: str, resource: str, kinds: Any, more: Mapping[str, str] | None = None
    ) -> Iterator[Check]:
        """Yield the check of a resource that exists; the service reports one that does not."""
        kind = _kind(resource)
        tags = self.account.tags(resource)
        if (kind and kind not in kinds) or tags is None:
            return
        shown = kind or next(iter(kinds))
        yield Check(action, self._arn(shown, resource), {**_resource_tags(tags), **(more or {})})

    def of_efs(self) -> Iterator[Check]:
        """Yield the checks of a request to EFS."""
        yield from self._of_files("elasticfilesystem")
        given, name = self.request.parameters, self.request.name
        if name == "CreateMountTarget":
            yield from map(Check, ("ec2:DescribeSubnets", "ec2:DescribeNetworkInterfaces"))
            for resource in (given.get("SubnetId", ""), *given.get("SecurityGroups", ())):
                yield from self._existing("ec2:CreateNetworkInterface", resource, _TYPES.values())
            yield Check("ec2:CreateNetworkInterface", self._arn("network-interface"))
        if name == "DeleteMountTarget":
            yield Check("ec2:DeleteNetworkInterface", self._arn("network-interface"))

    def of_fsx(self) -> Iterator[Check]:
        """Yield the checks of a request to FSx."""
        yield from self._of_files("fsx")
        if self.request.name == "CreateFileSystem":
            yield Check("ec2:GetSecurityGroupsForVpc")

    def _of_files(self, service: str) -> Iterator[Check]:
        given, name = self.request.parameters, self.request.name
        arn = f"arn:aws:{service}:{self.place}:file-system/"
        if name == "CreateFileSystem":
            tags = _request_tags(given.get("Tags", ()))
            yield Check(self.action, f"{arn}*", tags)
            creation = {f"{service}:CreateAction": name}
            yield Check(f"{service}:TagResource", f"{arn}*", {**tags, **creation})
            yield self._linked_role(service)
            return
        named = given.get("FileSystemId") or given.get("MountTargetId")
        named = named or str(given.get("ResourceId") or given.get("ResourceARN") or "")
        if not named:
            yield from self.plain()
            return
        resource = named.rpartition("/")[2]
        existing = self.account.tags(resource)
        if existing is not None:
            more = _request_tags(given.get("Tags", ()))
            yield Check(self.action, f"{arn}{resource}", {**_resource_tags(existing), **more})

    def of_iam(self) -> Iterator[Check]:
        """Yield the checks of a request to IAM."""
        given, name = self.request.parameters, self.request.name
        kind = "instance-profile" if "InstanceProfileName" in given else "role"
        named = given.get("InstanceProfileName") or given.get("RoleName")
        if named is None:
            yield from self.plain()
            return
        path = given.get("Path", "/")
        new = f"arn:aws:iam::{self.account.number}:{kind}{path}{named}"
        arn = new if name.startswith("Create") else self.account.role(kind, named)
        if arn is None:
            return  # IAM reports that there is no such role
        yield Check(self.action, arn, self._boundary() if kind == "role" else {})
        if name.startswith("Create") and given.get("Tags"):
            yield Check(f"iam:Tag{name.removeprefix('Create')}", arn)
        if name == "AddRoleToInstanceProfile":
            yield from self._passed(self.account.role("role", given["RoleName"]))

    def _boundary(self) -> dict[str, str]:
        """Return the key of the boundary: the one that the request sets, else the role's.

        "Actions, resources, and condition keys for AWS Identity and Access Management", Service
        Authorization Reference (2026-11-26). The lab has the key for all requests about a role;
        AWS has it for those that change its permissions or remove it, and no policy of gpuctl's
        has it for others.
        """
        given = self.request.parameters
        sets = self.request.name in ("CreateRole", "PutRolePermissionsBoundary")
        known = None if sets else self.account.boundary(given["RoleName"])
        boundary = given.get("PermissionsBoundary") if sets else known
        return {"iam:PermissionsBoundary": boundary} if boundary else {}

    def _passed(self, role: str | None) -> Iterator[Check]:
        if role is not None:
            yield Check("iam:PassRole", role, {"iam:PassedToService": "ec2.amazonaws.com"})

    def _linked_role(self, service: str) -> Check:
        path = f"aws-service-role/{service}.amazonaws.com/{LINKED_ROLES[service]}"
        return Check(LINKED_ROLE, f"arn:aws:iam::{self.account.number}:role/{path}")

    def of_ssm(self) -> Iterator[Check]:
        """Yield the checks of a request to Systems Manager.

        It tags each session with the id of the user who started it ("Additional sample IAM policies
        for Session Manager", Systems Manager User Guide, 2026-11-26).
        """
        if session := str(self.request.parameters.get("SessionId") or ""):
            owner = session.rpartition("-")[0]
            tag = USER_ID if owner == USER else owner
            yield Check(
                self.action,
                f"arn:aws:ssm:{self.place}:session/{session}",
                {"ssm:resourceTag/aws:ssmmessages:session-id": tag},
            )
            return
        if self.request.name != "StartSession":
            yield from self.plain()
            return
        given = self.request.parameters
        yield from self._existing(self.action, given.get("Target", ""), ("instance",))
        region = self.place.partition(":")[0]
        yield Check(self.action, f"arn:aws:ssm:{region}::document/{given.get('DocumentName')}")

    def _arn(self, kind: str, resource: str = "*") -> str:
        region, _, account = self.place.partition(":")
        return resource_arn("ec2", kind, resource, partition="aws", region=region, account=account)


def _named(operation: str, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids and names of resources in a request's parameters."""
    for value in _texts(given):
        if _ID.fullmatch(value):
            yield value
    if operation in ("RunInstances", "DeleteKeyPair") and "KeyName" in given:
        yield f"key-pair/{given['KeyName']}"
    if operation == "DeletePlacementGroup":
        yield f"placement-group/{given.get('GroupName')}"
    if operation == "RunInstances" and (group := given.get("Placement", {}).get("GroupName")):
        yield f"placement-group/{group}"


def _kind(resource: str) -> str:
    """Return the type of an id or of `type/name`."""
    if "/" in resource:
        return resource.partition("/")[0]
    return _TYPES.get(resource.partition("-")[0], "")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _request_tags(tags: Any) -> dict[str, str]:
    return {f"aws:RequestTag/{tag['Key']}": str(tag.get("Value", "")) for tag in tags}


def _resource_tags(tags: Tags) -> dict[str, str]:
    return {
        f"{prefix}/{key}": value
        for key, value in tags.items()
        for prefix in ("aws:ResourceTag", "ec2:ResourceTag")
    }
