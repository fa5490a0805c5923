"""EC2's documented rules about single requests that its service model does not have.

The rules of a launch that need the account's resources are in `lab.api.launch` and
`lab.api.interfaces`. Where no other source is named, a rule is from the EC2 API's reference of the
operation or type (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html and
so on), whose text botocore's model contains; all read 2026-11-23. Paths are JMESPath's.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jmespath

from lab.requests.model_rules import Problem
from lab.requests.wire import Request

USER_DATA_BYTES = 16384
"""User data's limit before base64 ("User data is limited to 16 KB", RequestLaunchTemplateData)."""

_LAUNCHES = {"RunInstances": "", "CreateLaunchTemplate": "LaunchTemplateData.",
             "CreateLaunchTemplateVersion": "LaunchTemplateData."}  # fmt: skip
"""The operations that describe a launch, and where in their parameters."""

_GROUP_TEXT = r"[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]*"
_ASCII = r"[\x00-\x7f]*"
_TEMPLATE_NAME = r"[a-zA-Z0-9()./\-_]*"


@dataclass(frozen=True)
class _Text:
    """A text's longest and shortest length and its pattern."""

    operation: str
    path: str
    most: int
    pattern: str = ".*"
    least: int = 0


_RULE = "IpPermissions[].{}[].Description"
_SOURCES = ("IpRanges", "UserIdGroupPairs", "Ipv6Ranges", "PrefixListIds")
_CALLS = ("AuthorizeSecurityGroupIngress", "AuthorizeSecurityGroupEgress")

_TEXTS = (
    _Text("CreateSecurityGroup", "GroupName", 255, rf"(?!sg-){_GROUP_TEXT}"),
    _Text("CreateSecurityGroup", "Description", 255, _GROUP_TEXT),
    *(_Text(o, _RULE.format(s), 255, _GROUP_TEXT) for o in _CALLS for s in _SOURCES),
    _Text("CreatePlacementGroup", "GroupName", 255, _ASCII),
    _Text("ImportKeyPair", "KeyName", 255, _ASCII),  # said of CreateKeyPair's KeyName
    # LaunchTemplate: "Minimum length of 3. Maximum length of 128." and its pattern
    _Text("CreateLaunchTemplate", "LaunchTemplateName", 128, _TEMPLATE_NAME, 3),
    _Text("RunInstances", "ClientToken", 64, _ASCII),
    _Text("CreateNatGateway", "ClientToken", 64, _ASCII),
    _Text("CreateLaunchTemplate", "ClientToken", 128, _ASCII),
    _Text("CreateLaunchTemplateVersion", "ClientToken", 128, _ASCII),
)


@dataclass(frozen=True)
class _Range:
    """A number's range."""

    operation: str
    path: str
    least: int
    most: int | None


_GP3 = "BlockDeviceMappings[?Ebs.VolumeType=='gp3'].Ebs."

_RANGES = (
    _Range("RunInstances", "MinCount", 1, None),
    _Range("RunInstances", "MaxCount", 1, None),
    _Range("CreateCapacityReservation", "InstanceCount", 1, 1000),
    _Range("ModifyInstanceMetadataOptions", "HttpPutResponseHopLimit", 1, 64),
    *(
        rule
        for operation, at in _LAUNCHES.items()
        for rule in (
            _Range(operation, f"{at}MetadataOptions.HttpPutResponseHopLimit", 1, 64),
            _Range(operation, f"{at}{_GP3}VolumeSize", 1, 65536),
            _Range(operation, f"{at}{_GP3}Iops", 3000, 80000),
            _Range(operation, f"{at}{_GP3}Throughput", 125, 2000),
        )
    ),
    _Range("DescribeLaunchTemplateVersions", "MaxResults", 1, 200),
)

_MOST = {
    ("DescribeInstanceTopology", "InstanceIds"): 100,
    ("DescribeInstanceTopology", "GroupNames"): 100,
    ("TerminateInstances", "InstanceIds"): 1000,
    ("CreateTags", "Resources"): 1000,
}
"""The longest lists."""

_EITHER = {
    "DescribeInstances": "InstanceIds",
    "DescribeInstanceTopology": "InstanceIds",
    "DescribeNetworkInterfaces": "NetworkInterfaceIds",
}
"""Ids that cannot be in a request with MaxResults."""

_TAGGED_AT_LAUNCH = frozenset({"instance", "volume", "network-interface", "spot-instances-request"})

FILTER_VALUES = 200
"""Filter values of one request (EC2's own text, https://github.com/gjbae1212/gossm/issues/47)."""

TAGS, TAG_KEY, TAG_VALUE = 50, 128, 256
"""Tags of a resource, and the characters of a tag's key and value, as in all of AWS's services
(https://docs.aws.amazon.com/batch/latest/userguide/tag-restrictions.html). CreateTags' reference
says 127 for keys."""


def problems(request: Request) -> Iterator[Problem]:
    """Yield the rules that a request to EC2 breaks, which follows its service model."""
    given = request.parameters
    for text in _of(_TEXTS).get(request.name, ()):
        yield from _check_text(text, given)
    for numbers in _of(_RANGES).get(request.name, ()):
        yield from _check_range(numbers, given)
    yield from _check_tags(request)
    yield from _check_filters(request)
    if request.name in _LAUNCHES:
        yield from _check_launch(request)
    if request.name == "CreateCapacityReservation":
        yield from _check_reservation(given)
    for (operation, name), most in _MOST.items():
        if operation == request.name and len(listed := given.get(name, ())) > most:
            text = f"{name} may have {most} entries, {len(listed)} were given"
            yield Problem("value", name, text)
    ids = _EITHER.get(request.name, "")
    if ids in given and "MaxResults" in given:
        text = f"The parameter MaxResults cannot be used with the parameter {ids}"
        yield Problem("combination", ids, text)


@cache
def _of(rules: tuple[Any, ...]) -> dict[str, list[Any]]:
    """Return the rules by their operation."""
    by_operation: dict[str, list[Any]] = {}
    for rule in rules:
        by_operation.setdefault(rule.operation, []).append(rule)
    return by_operation


_search = cache(jmespath.compile)


def _values(path: str, given: Mapping[str, Any]) -> list[Any]:
    """Return the values at the path, without those that are missing."""
    values = _search(path).search(given)
    return [
        value_
        for value_ in (values if isinstance(values, list) else [values])
        if value_ is not None
    ]


def _invalid(value: Any, path: str, why: str) -> Problem:
    name = re.sub(r"\[[^]]*]", "", path)
    return Problem("value", name, f"Value ({value}) for parameter {name} is invalid. {why}")


def _check_text(rule: _Text, given: Mapping[str, Any]) -> Iterator[Problem]:
    for value in _values(rule.path, given):
        if not rule.least <= len(value) <= rule.most:
            why = f"It must have {rule.least} to {rule.most} characters"
            yield _invalid(value, rule.path, why)
        elif not re.fullmatch(rule.pattern, value):
            yield _invalid(value, rule.path, f"It must match {rule.pattern}")


def _check_range(rule: _Range, given: Mapping[str, Any]) -> Iterator[Problem]:
    for value in _values(rule.path, given):
        if value < rule.least or (rule.most is not None and value > rule.most):
            upper = "" if rule.most is None else f", maximum: {rule.most}"
            yield _invalid(value, rule.path, f"Minimum: {rule.least}{upper}")


# Tags


def _check_tags(request: Request) -> Iterator[Problem]:
    given = request.parameters
    lists = [specification.get("Tags", []) for specification in given.get("TagSpecifications", [])]
    in_template = given.get("LaunchTemplateData", {}).get("TagSpecifications", [])
    lists += [specification.get("Tags", []) for specification in in_template]
    if request.name == "CreateTags":
        lists.append(given["Tags"])
    for tags in lists:
        yield from _check_tag_list(tags)


def _check_tag_list(tags: list[Mapping[str, str]]) -> Iterator[Problem]:
    keys = [tag.get("Key", "") for tag in tags]
    if len(keys) > TAGS:
        text = f"A resource has {TAGS} tags at most, not {len(keys)}"
        yield Problem("value", "Tags", text, "TagLimitExceeded")
    for key in keys:
        if not key or key.lower().startswith("aws:"):
            text = f"Tag key '{key}' is not valid: it is empty, or begins with aws:"
            yield Problem("value", "Tags", text, "InvalidTagKey.Malformed")
        if len(key) > TAG_KEY:
            yield _invalid(key, "Tags[].Key", f"It must have at most {TAG_KEY} characters")
        if keys.count(key) > 1:
            yield Problem("value", "Tags", f"Duplicate tag key '{key}' specified.")
    for tag in tags:
        if len(value := tag.get("Value", "")) > TAG_VALUE:
            yield _invalid(value, "Tags[].Value", f"It must have at most {TAG_VALUE} characters")


# Filters


def _check_filters(request: Request) -> Iterator[Problem]:
    name = next((word for word in ("Filters", "Filter") if word in request.parameters), None)
    if name is None:
        return
    known = _filter_names(request.operation, name)
    filters = request.parameters[name]
    for filter_ in filters:
        filter_name = filter_.get("Name", "")
        if (
            known
            and (filter_name.partition(":")[0] if filter_name[:4] == "tag:" else filter_name)
            not in known
        ):
            yield Problem("value", name, f"The filter '{filter_name}' is invalid")
    if sum(len(condition.get("Values", ())) for condition in filters) > FILTER_VALUES:
        text = f"The maximum number of filter values specified on a single call is {FILTER_VALUES}"
        yield Problem("value", name, text, "FilterLimitExceeded")


@cache
def _filter_names(operation: Any, parameter: str) -> frozenset[str]:
    """Return the filters that the operation's reference lists; empty if it lists none.

    `tag` means all filters by a tag's value.
    """
    text = operation.input_shape.members[parameter].documentation
    listed = re.findall(r"<li> *<p> *<code>([^<]+)</code>", text)
    return frozenset(name.partition(":")[0] if name[:4] == "tag:" else name for name in listed)


# Launches


def _check_launch(request: Request) -> Iterator[Problem]:
    at = _LAUNCHES[request.name].rstrip(".")
    given = request.parameters.get(at, {}) if at else request.parameters
    yield from _check_user_data(given.get("UserData", ""), request.name)
    for specification in given.get("TagSpecifications", ()):
        if specification.get("ResourceType") not in _TAGGED_AT_LAUNCH:
            kind = specification.get("ResourceType")
            text = f"'{kind}' is not a valid taggable resource type for this operation."
            yield Problem("value", "TagSpecifications", text)
    yield from _check_spot(given.get("InstanceMarketOptions", {}))
    yield from _check_target(given.get("CapacityReservationSpecification", {}))
    if given.get("MaxCount", 1) < given.get("MinCount", 1):
        yield _invalid(given["MinCount"], "MinCount", "It is more than MaxCount")


def _check_user_data(encoded: str, operation: str) -> Iterator[Problem]:
    """Check that user data are base64, and not too long.

    A template's version answers InvalidUserData.Malformed for both
    (https://github.com/github-aws-runners/terraform-aws-github-runner/issues/3700,
    https://github.com/awslabs/ec2-spot-workshops/issues/15), RunInstances InvalidParameterValue
    (https://github.com/deckhouse/deckhouse/issues/5949,
    https://github.com/hashicorp/packer/issues/2616).
    """
    code = "" if operation == "RunInstances" else "InvalidUserData.Malformed"
    try:
        size = len(base64.b64decode("".join(encoded.split()), validate=True))
    except (binascii.Error, ValueError):
        yield Problem("value", "UserData", "Invalid BASE64 encoding of user data.", code)
    else:
        if size > USER_DATA_BYTES:
            text = f"User data is limited to {USER_DATA_BYTES} bytes"
            yield Problem("value", "UserData", text, code)


def _check_spot(market: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the options of spot instances, which only MarketType spot has.

    "MarketType: required if SpotOptions is specified" (InstanceMarketOptionsRequest), "For a
    one-time request, ValidUntil is not supported" (SpotMarketOptions). Stopping needs a persistent
    request (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/interruption-behavior.html).
    """
    options = market.get("SpotOptions")
    if options is None:
        return
    if market.get("MarketType") != "spot":
        text = "SpotOptions can be used with MarketType spot only"
        yield Problem("combination", "InstanceMarketOptions", text)
    if options.get("SpotInstanceType") == "persistent":
        return
    if "ValidUntil" in options:
        text = "ValidUntil is not supported for one-time Spot requests"
        yield Problem("combination", "InstanceMarketOptions", text)
    if (behaviour := options.get("InstanceInterruptionBehavior")) in ("stop", "hibernate"):
        text = f"InstanceInterruptionBehavior {behaviour} needs a persistent Spot request"
        yield Problem("combination", "InstanceMarketOptions", text)


def _check_target(specification: Mapping[str, Any]) -> Iterator[Problem]:
    """Check a preference next to a target, which CapacityReservationSpecification allows once."""
    preference = specification.get("CapacityReservationPreference", "capacity-reservations-only")
    if "CapacityReservationTarget" in specification and preference != "capacity-reservations-only":
        text = f"CapacityReservationPreference {preference} cannot be used with a target"
        yield Problem("combination", "CapacityReservationSpecification", text)


def _check_reservation(given: Mapping[str, Any]) -> Iterator[Problem]:
    if not {"AvailabilityZone", "AvailabilityZoneId"} & set(given):
        name = "AvailabilityZone"
        yield Problem("missing", name, f"The request must contain the parameter {name}")
    if (given.get("EndDateType") == "limited") != ("EndDate" in given):
        text = "EndDate goes with EndDateType limited, and only with it."
        yield Problem("combination", "EndDate", text)
