"""What a resource type is to this provider, and what its types share."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from botocore.exceptions import ClientError

from lab.provider.values import Properties

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

WAIT_S = 600.0
"""How long a creation or deletion may take, as for instances in the real provider."""

_POLL_S = 0.2  # the API is on this machine: an answer costs about 5 ms


class Resource(ABC):
    """One resource type: what it takes, and how it is made, read, changed and removed.

    Every method may raise botocore's ClientError; `server` turns it into the engine's diagnostic.
    """

    token: ClassVar[str]
    """Pulumi's name of the type (`aws:ec2/vpc:Vpc`)."""
    title: ClassVar[str]
    """What the real provider's errors call it (`EC2 VPC`)."""
    required: ClassVar[frozenset[str]] = frozenset()
    replacing: ClassVar[frozenset[str]] = frozenset()
    """Inputs that AWS cannot change on a living resource."""
    updating: ClassVar[frozenset[str]] = frozenset({"tags"})
    """Inputs that change in place."""
    computed: ClassVar[frozenset[str]] = frozenset()
    """Outputs that are unknown until the resource exists."""
    renewed: ClassVar[frozenset[str]] = frozenset()
    """Outputs that any change in place makes unknown until it is done."""
    service: ClassVar[str] = "ec2"
    """The service of AWS that has it, as boto3 calls it."""
    ec2: "EC2Client"

    def __init__(self, aws: Any) -> None:
        """`aws` is a client of the type's service."""
        self.ec2 = self.aws = aws

    def problems(self, inputs: Properties) -> Mapping[str, str]:
        """What is wrong with the inputs beyond their names: property -> reason."""
        del inputs
        return {}

    @abstractmethod
    def create(self, inputs: Properties) -> str:
        """The resource exists; returns its id. Nothing is waited for here."""

    def complete(self, resource_id: str, inputs: Properties) -> None:  # noqa: B027 most need nothing
        """The resource, which exists, is ready and all that was asked for."""

    @abstractmethod
    def read(self, resource_id: str, state: Properties) -> Properties | None:
        """What is really there, laid over `state`; None where it is gone."""

    @abstractmethod
    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """The resource, which had `state`, has `inputs`."""

    @abstractmethod
    def delete(self, resource_id: str, state: Properties) -> None:
        """The resource is gone when this returns."""

    def retag(self, aws_id: str, state: Properties, inputs: Properties) -> None:
        """The tags at `aws_id` are those of `inputs`."""
        old, new = state.get("tags") or {}, inputs.get("tags") or {}
        if gone := sorted(set(old) - set(new)):
            self.ec2.delete_tags(Resources=[aws_id], Tags=[{"Key": key} for key in gone])
        if fresh := {key: value for key, value in new.items() if old.get(key) != value}:
            self.ec2.create_tags(Resources=[aws_id], Tags=aws_tags(fresh))


def aws_tags(tags: Mapping[str, str]) -> Any:
    """Tags as EC2 takes them."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def tags_of(description: Mapping[str, Any]) -> dict[str, str]:
    """The tags in a description by EC2, without AWS's own."""
    tags = description.get("Tags") or []
    return {t["Key"]: t["Value"] for t in tags if not t["Key"].startswith("aws:")}


def tag_specifications(kind: str, inputs: Properties) -> Any:
    """The inputs' tags as a creating call takes them; none where there are none."""
    tags = inputs.get("tags") or {}
    return [{"ResourceType": kind, "Tags": aws_tags(tags)}] if tags else []


def code_of(error: ClientError) -> str:
    """AWS's code of the error (`InvalidVpcID.NotFound`)."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_gone(error: ClientError) -> bool:
    """Whether AWS says that the resource does not exist."""
    code = code_of(error)
    return "NotFound" in code or code in ("InvalidPlacementGroup.Unknown", "NoSuchEntity")


def first(describe: Callable[[], Sequence[Any]]) -> Any | None:
    """The first of what `describe` returns; None where there is none or AWS knows it no more."""
    try:
        found = describe()
    except ClientError as error:
        if is_gone(error):
            return None
        raise
    return found[0] if found else None


def wait(done: Callable[[], bool], what: str) -> None:
    """`done` has returned True; raises TimeoutError with `what` after WAIT_S."""
    end = time.monotonic() + WAIT_S
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"timeout while waiting for {what} ({WAIT_S:.0f} s)")
        time.sleep(_POLL_S)
