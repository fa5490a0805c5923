"""RunInstances' parameters: merged with a launch template and checked by EC2's rules.

All checks come before the first change, so that a launch happens whole or not at all.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from lab.api import interfaces as layouts
from lab.api.ami_parameters import Ami, find_ami
from lab.api.capacity_reservations import insufficient_capacity, reservation_of, room
from lab.api.errors import Refusal, bad_combination, bad_value
from lab.api.interfaces import InterfaceRequest
from lab.api.quotas import check_vcpus
from lab.api.sessions import check_profile

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class ResolvedLaunch:
    """A launch with all values resolved. `parameters` merge the request and its template."""

    parameters: Parameters
    image: Ami
    instance_type: str
    count: int
    subnet: Any
    interfaces: tuple[InterfaceRequest, ...]
    tags: Mapping[str, Mapping[str, str]]
    template: Any = None
    reservation: Any = None

    @property
    def placement_group(self) -> str:
        """The placement group's name; empty if there is none."""
        return str((self.parameters.get("Placement") or {}).get("GroupName") or "")

    @property
    def tenancy(self) -> str:
        """The tenancy; that of a reservation must be the same."""
        return str((self.parameters.get("Placement") or {}).get("Tenancy") or "default")

    @property
    def user_data(self) -> bytes:
        """The user data as the instance receives it."""
        return base64.b64decode(str(self.parameters.get("UserData") or ""))

    def groups_of(self, interface: InterfaceRequest) -> tuple[str, ...]:
        """Return the ids of an interface's security groups."""
        return interface.groups or tuple(self.parameters.get("SecurityGroupIds") or ())


def resolve(backend: Any, request: Parameters) -> ResolvedLaunch:
    """Return the launch that the request asks for, ready to run; Refusal where EC2 refuses it."""
    template = None
    if named := request.get("LaunchTemplate"):
        template = _template(backend, named)
    parameters = _merge(request, template.data if template else {})
    instance_type = str(parameters.get("InstanceType") or "m1.small")
    if instance_type not in INSTANCE_TYPES:
        raise bad_value(f"Invalid value '{instance_type}' for InstanceType.")
    if not parameters.get("ImageId"):
        raise Refusal("MissingParameter", "The request must contain the parameter ImageId")
    image = find_ami(backend, parameters["ImageId"])
    interfaces = _interfaces(parameters)
    layouts.check(interfaces, instance_type, INSTANCE_TYPES[instance_type]["NetworkInfo"])
    subnet = _subnet(backend, interfaces)
    launch = ResolvedLaunch(
        parameters=parameters,
        image=image,
        instance_type=instance_type,
        count=0,
        subnet=subnet,
        interfaces=interfaces,
        tags=_tags(request, template),
        template=template,
    )
    _check_architecture(launch)
    _check_zone(launch)
    _check_references(backend, launch)
    _check_disks(launch)
    count = _count(backend, launch)
    _check_addresses(launch, count)
    return replace(launch, count=count, reservation=reservation_of(backend, launch, count))


def template_data(backend: Any, named: Parameters) -> Parameters:
    """Return the parameters of a launch template's version; Refusal if there is none."""
    data: Parameters = _template(backend, named).data
    return data


def _template(backend: Any, named: Parameters) -> Any:
    known = backend.launch_templates
    name, template_id = named.get("LaunchTemplateName"), named.get("LaunchTemplateId")
    if template_id not in known:
        template_id = backend.launch_template_name_to_ids.get(name)
    if template_id not in known:
        if name:
            raise Refusal(
                "InvalidLaunchTemplateName.NotFoundException",
                f"The specified launch template, with template name {name}, does not exist.",
            )
        raise Refusal(
            "InvalidLaunchTemplateId.NotFound",
            f"The specified launch template, with template ID"
            f" {named.get('LaunchTemplateId')}, does not exist.",
        )
    return known[template_id].get_version(named.get("Version") or "$Default")


def _merge(request: Parameters, template: Parameters) -> dict[str, Any]:
    """Merge the parameters: the request overrides the template; Placement merges key by key."""
    merged = {key: value for key, value in template.items() if value not in (None, [], {})}
    for key, value in request.items():
        if value not in (None, [], {}):
            merged[key] = {**merged.get(key, {}), **value} if key == "Placement" else value
    return merged


def _tags(request: Parameters, template: Any) -> dict[str, dict[str, str]]:
    tags: dict[str, dict[str, str]] = {}
    for source in (template.data if template else {}, request):
        for item in source.get("TagSpecifications") or ():
            kind = tags.setdefault(item["ResourceType"], {})
            kind.update({tag["Key"]: tag.get("Value", "") for tag in item.get("Tags") or ()})
    if template:
        # AWS adds these two itself.
        tags.setdefault("instance", {}).update(
            {
                "aws:ec2launchtemplate:id": template.template.id,
                "aws:ec2launchtemplate:version": str(template.number),
            }
        )
    return tags


def _interfaces(parameters: Parameters) -> tuple[InterfaceRequest, ...]:
    listed = tuple(map(layouts.parse, parameters.get("NetworkInterfaces") or ()))
    if not listed:
        return (
            layouts.parse(
                {
                    "DeviceIndex": 0,
                    "SubnetId": parameters.get("SubnetId"),
                    "PrivateIpAddress": parameters.get("PrivateIpAddress"),
                }
            ),
        )
    for key, name in (
        ("SubnetId", "an instance-level subnet ID"),
        ("SecurityGroupIds", "instance-level security groups"),
        ("PrivateIpAddress", "an instance-level private address"),
    ):
        if parameters.get(key):
            raise bad_combination(
                f"Network interfaces and {name} may not be specified on the same request"
            )
    return tuple(sorted(listed, key=lambda interface: (interface.card, interface.device)))


def _subnet(backend: Any, interfaces: tuple[InterfaceRequest, ...]) -> Any:
    primary = interfaces[0].subnet_id
    if not primary:
        raise Refusal("VPCIdNotSpecified", "No default VPC for this user")
    subnet = backend.get_subnet(primary)
    for interface in interfaces[1:]:
        if backend.get_subnet(interface.subnet_id or primary).id != subnet.id:
            raise bad_combination("The lab puts all interfaces of an instance into one subnet.")
    return subnet


def _check_architecture(launch: ResolvedLaunch) -> None:
    supported = INSTANCE_TYPES[launch.instance_type]["ProcessorInfo"]["SupportedArchitectures"]
    if launch.image.architecture not in supported:
        own = next((a for a in supported if a in ("x86_64", "arm64")), supported[0])
        raise bad_value(
            f"The architecture '{own}' of the specified instance type does not match the"
            f" architecture '{launch.image.architecture}' of the specified AMI. Specify an instance"
            " type and an AMI that have matching architectures, and try again. You can use"
            " 'describe-instance-types' or 'describe-images' to discover the architecture of the"
            " instance type or AMI."
        )


def _check_zone(launch: ResolvedLaunch) -> None:
    """Refuse a zone that does not offer the type, in AWS's own words (Unsupported)."""
    zone = launch.subnet.availability_zone
    requested = (launch.parameters.get("Placement") or {}).get("AvailabilityZone")
    if requested and requested != zone:
        raise bad_value(
            f"The availability zone {requested} is not that of the subnet {launch.subnet.id}"
            f" ({zone})."
        )
    offers = launch.image.ec2_backend.describe_instance_type_offerings(
        "availability-zone", {"instance-type": [launch.instance_type]}
    )
    zones = sorted(offer["Location"] for offer in offers)
    if zone not in zones:
        instead = f" or choosing {', '.join(zones)}" if zones else ""
        raise Refusal(
            "Unsupported",
            f"Your requested instance type ({launch.instance_type}) is not supported in your"
            f" requested Availability Zone ({zone}). Please retry your request by not specifying"
            f" an Availability Zone{instead}.",
        )


def _check_references(backend: Any, launch: ResolvedLaunch) -> None:
    if launch.placement_group:
        _check_strategy(backend.placement_group(launch.placement_group), launch.instance_type)
    profile = launch.parameters.get("IamInstanceProfile")
    check_profile(backend.account_id, profile, backend.lab.profile_delay_s)
    key = launch.parameters.get("KeyName")
    if key and key not in backend.key_pairs:
        raise Refusal("InvalidKeyPair.NotFound", f"The key pair '{key}' does not exist")
    for interface in launch.interfaces:
        for group_id in launch.groups_of(interface):
            group = backend.get_security_group_from_id(group_id)
            if group is None or group.vpc_id != launch.subnet.vpc_id:
                raise Refusal(
                    "InvalidGroup.NotFound", f"The security group '{group_id}' does not exist"
                )


def _check_strategy(group: Any, instance_type: str) -> None:
    """Raise Refusal if the type does not support the placement group's strategy.

    Source of the text: dstackai/dstack issue 2872 (2026-11-20).
    """
    able = INSTANCE_TYPES[instance_type].get("PlacementGroupInfo", {}).get("SupportedStrategies")
    if able and group.strategy not in able:
        raise bad_combination(
            f"{group.strategy.capitalize()} placement groups are not supported by the"
            f" '{instance_type}' instance type. Specify a supported instance type or change the"
            " placement group strategy, and try again."
        )


def _check_disks(launch: ResolvedLaunch) -> None:
    for mapping in launch.parameters.get("BlockDeviceMappings") or ():
        size = (mapping.get("Ebs") or {}).get("VolumeSize")
        smallest = launch.image.family.size_gib
        if mapping.get("DeviceName") == launch.image.root_device_name and size and size < smallest:
            raise Refusal(
                "InvalidBlockDeviceMapping",
                f"Volume of size {size}GB is smaller than snapshot"
                f" '{launch.image.ebs_snapshot.id}', expect size >= {smallest}GB",
            )


def _count(backend: Any, launch: ResolvedLaunch) -> int:
    """Return how many instances start: MaxCount, or as many as fit, at least MinCount."""
    least, most = int(launch.parameters["MinCount"]), int(launch.parameters["MaxCount"])
    zone, kind = launch.subnet.availability_zone, launch.instance_type
    if reservation_of(backend, launch, least) is not None:
        return least  # the reservation holds the room already
    market = (launch.parameters.get("InstanceMarketOptions") or {}).get("MarketType")
    check_vcpus(backend, kind, least, market == "spot")
    left = room(backend, zone, kind)
    if left is None:
        return most
    if left < least:
        raise insufficient_capacity(zone, kind)
    return min(most, left)


def _check_addresses(launch: ResolvedLaunch, count: int) -> None:
    needed = sum(interface.takes_ip for interface in launch.interfaces) * count
    requested = [interface.private_ip for interface in launch.interfaces if interface.private_ip]
    if requested and count > 1:
        raise bad_combination("A private address fits one instance only.")
    for address in requested:
        launch.subnet.check_free(address)
    if needed > launch.subnet.available_ip_address_count:
        raise Refusal(
            "InsufficientFreeAddressesInSubnet",
            f"There are not enough free addresses in subnet '{launch.subnet.id}' to satisfy the"
            " requested number of instances.",
        )
