"""The base class of resource types, and the functions that the types share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from botocore.exceptions import ClientError

from config.polling import Timeouts, poll
from lab.provider.values import Properties

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

WAIT_S = 600.0
"""The time limit for a creation or deletion: the real provider's for the creation of instances."""

PROPAGATION_S = 300.0
"""The longest time for which a new resource may be unknown to EC2: `ec2PropagationTimeout` of
hashicorp/terraform-provider-aws, internal/service/ec2/consts.go (2026-11-23)."""

IAM_PROPAGATION_S = 120.0
"""The longest time for which EC2 may not know a new instance profile or its role:
`iamPropagationTimeout`, in the same file (2026-11-23)."""


@dataclass(frozen=True)
class Times:
    """The provider's times, in seconds: to create or delete, and for EC2 to know what is new.

    Pauses between retries are `faster` times shorter than the real provider's: a minute is 0.3 s.
    """

    wait_s: float = WAIT_S
    propagation_s: float = PROPAGATION_S
    faster: float = 200.0


TIMES = Times()

limit_s: ContextVar[float] = ContextVar("limit_s", default=WAIT_S)
"""The time limit of the current call: WAIT_S, or what the program set (`custom_timeouts`)."""

_POLL_S = 0.2  # the API is on this machine: an answer takes about 5 ms


class Resource(ABC):
    """A resource type: its inputs, and how to create, read, update and delete a resource.

    Every method may raise botocore's ClientError; `server` reports it to the Pulumi engine.
    """

    token: ClassVar[str]
    """Pulumi's name of the type (`aws:ec2/vpc:Vpc`)."""
    title: ClassVar[str]
    """The type's name in the real provider's errors (`EC2 VPC`)."""
    required: ClassVar[frozenset[str]] = frozenset()
    replacing: ClassVar[frozenset[str]] = frozenset()
    """Inputs that AWS cannot change on an existing resource."""
    updating: ClassVar[frozenset[str]] = frozenset({"tags"})
    """Inputs that AWS can change in place."""
    computed: ClassVar[frozenset[str]] = frozenset()
    """Outputs that are unknown until the resource exists."""
    renewed: ClassVar[frozenset[str]] = frozenset()
    """Outputs that are unknown until a change in place is done."""
    read_inputs: ClassVar[frozenset[str]] = frozenset()
    """Properties that a refresh adds to the inputs, although the program does not set them.

    Observed with `userData` of an instance, which came from its launch template
    (https://github.com/pulumi/pulumi-aws/issues/3449, 2026-11-26)."""
    lookup: ClassVar[tuple[str, str, str]] = ("", "", "")
    """The request that describes resources, its parameter for ids, and the list in its answer."""
    ended: ClassVar[tuple[str, ...]] = ()
    """The states of a resource that is gone although AWS still describes it."""
    removal: ClassVar[tuple[str, str]] = ("", "")
    """The request that deletes a resource, and its parameter for the id; see `delete`."""
    in_use_s: ClassVar[float] = 0.0
    """How long the real provider repeats the removal of a resource that another one uses."""
    service: ClassVar[str] = "ec2"
    """boto3's name of the AWS service that the type belongs to."""
    ec2: "EC2Client"

    def __init__(self, aws: Any) -> None:
        """Take a boto3 client of the type's service."""
        self.ec2 = self.aws = aws

    def problems(self, inputs: Properties) -> Mapping[str, str]:
        """Return the problems of the inputs' values: properties mapped to reasons."""
        del inputs
        return {}

    @abstractmethod
    def create(self, inputs: Properties) -> str:
        """Create the resource and return its id, without waiting for anything."""

    def is_known(self, resource_id: str, inputs: Properties) -> bool:
        """Return whether EC2 knows the new resource by now.

        The real provider asks after each creation, by the resource's waiter or by
        `RetryWhenNewResourceNotFound`.
        """
        return self.read(resource_id, inputs) is not None

    def complete(self, resource_id: str, inputs: Properties) -> None:  # noqa: B027 most need nothing
        """Set the rest of the inputs on a new resource, and wait until it is ready."""

    def describe(self, resource_id: str) -> Any | None:
        """Return AWS's description of the resource, by default by `lookup`; None without one."""
        request, parameter, answer = self.lookup
        return first(lambda: getattr(self.aws, request)(**{parameter: [resource_id]})[answer])

    def read(self, resource_id: str, state: Properties) -> Properties | None:
        """Return `state`, updated with the actual properties; None if the resource is gone."""
        actual = self.describe(resource_id)
        if actual is None or actual.get("State") in self.ended:
            return None
        return {**state, **self.properties(actual, state)}

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return the properties that AWS's description `actual` of the resource says."""
        del actual, state
        return {}

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Change the resource from `state` to `inputs`; by default by `complete`, and the tags."""
        self.complete(resource_id, inputs)
        self.retag(resource_id, state, inputs)

    def delete(self, resource_id: str, state: Properties) -> None:
        """Delete the resource, and wait until it is deleted; by default by `removal`."""
        request, parameter = self.removal
        getattr(self.aws, request)(**{parameter: resource_id})

    def retag(self, aws_id: str, state: Properties, inputs: Properties) -> None:
        """Change the tags of the resource `aws_id` from those of `state` to those of `inputs`."""
        old, new = state.get("tags") or {}, inputs.get("tags") or {}
        if gone := sorted(set(old) - set(new)):
            self.ec2.delete_tags(Resources=[aws_id], Tags=[{"Key": key} for key in gone])
        if fresh := {key: value for key, value in new.items() if old.get(key) != value}:
            self.ec2.create_tags(Resources=[aws_id], Tags=aws_tags(fresh))


def aws_tags(tags: Mapping[str, str]) -> Any:
    """Return tags as EC2 accepts them."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def tags_of(description: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags in EC2's description of a resource, without those that AWS sets."""
    tags = description.get("Tags") or []
    return {t["Key"]: t["Value"] for t in tags if not t["Key"].startswith("aws:")}


def tag_specifications(kind: str, inputs: Properties) -> Any:
    """Return the inputs' tags as TagSpecifications of a creating call; empty without tags."""
    tags = inputs.get("tags") or {}
    return [{"ResourceType": kind, "Tags": aws_tags(tags)}] if tags else []


def code_of(error: ClientError) -> str:
    """Return AWS's code of the error (`InvalidVpcID.NotFound`)."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_gone(error: ClientError) -> bool:
    """Return whether the error means that the resource does not exist."""
    code = code_of(error)
    return "NotFound" in code or code in ("InvalidPlacementGroup.Unknown", "NoSuchEntity")


def is_new_profile(error: ClientError) -> bool:
    """Return whether EC2 refuses a launch because it does not know a new profile or its role yet.

    Source: `resourceInstanceCreate` of hashicorp/terraform-provider-aws (2026-11-23).
    """
    text = str(error.response.get("Error", {}).get("Message", ""))
    new = "Invalid IAM Instance Profile" in text or " has no associated IAM Roles" in text
    return new and code_of(error) == "InvalidParameterValue"


def first(describe: Callable[[], Sequence[Any]]) -> Any | None:
    """Return the first item of `describe`; None if there is none or AWS reports it as gone."""
    try:
        descriptions = describe()
    except ClientError as error:
        if is_gone(error):
            return None
        raise
    return descriptions[0] if descriptions else None


def wait(done: Callable[[], bool], what: str, limit: float | None = None) -> None:
    """Wait until `done` returns True; TimeoutError with `what` after `limit` seconds.

    Without `limit` it is that of the current call, `limit_s`.
    """
    limit = limit_s.get() if limit is None else limit
    if not poll(lambda: done() or None, Timeouts(limit, _POLL_S)):
        raise TimeoutError(f"timeout while waiting for {what} ({limit:.0f} s)")
