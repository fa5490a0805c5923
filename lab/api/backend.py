"""A region's EC2 in the lab: moto's backend, plus real machines and the errors of AWS."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar

from moto.ec2 import utils as moto_utils
from moto.ec2.models import EC2Backend
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from moto.ec2.models.instances import Reservation
from moto.ec2.models.subnets import Subnet as MotoSubnet

from config.errors import LabError
from lab.amis import FAMILIES
from lab.api import ami_parameters, guardduty, launch
from lab.api.addresses import Addresses
from lab.api.capacity_reservations import CapacityReservations
from lab.api.errors import Refusal, bad_combination, in_use
from lab.api.instances import Instance
from lab.api.interfaces import NetworkInterface
from lab.api.placement_groups import PlacementGroups
from lab.api.propagation import Propagation
from lab.api.region import Lab
from lab.api.spot import SpotInstances

# moto derives resource types from id prefixes, and filters from this table.
moto_utils.EC2_RESOURCE_TO_PREFIX["capacity-reservation"] = "cr"
moto_utils.EC2_PREFIX_TO_RESOURCE["cr"] = "capacity-reservation"
moto_utils.EC2_RESOURCE_TO_PREFIX["placement-group"] = "pg"
moto_utils.EC2_PREFIX_TO_RESOURCE["pg"] = "placement-group"
moto_utils.filter_dict_attribute_mapping["placement-group-name"] = "placement.group_name"
moto_utils.filter_dict_attribute_mapping["client-token"] = "client_token"
moto_utils.filter_dict_attribute_mapping["capacity-reservation-id"] = "capacity_reservation_id"

SHUTDOWN = "Client.InstanceInitiatedShutdown"
BY_USER = "Client.UserInitiatedShutdown"


_BY_POSITION = ("private_ip_addresses", "group_ids", "description", "tags")
"""The arguments that moto passes without names for CreateNetworkInterface, in their order."""


class LabBackend(
    Addresses,
    CapacityReservations,
    PlacementGroups,
    SpotInstances,
    EC2Backend,  # type: ignore[misc]  # untyped moto
):
    """EC2 of one region. The server sets `lab`, which all regions share.

    The region has no default VPC, like an account whose owner deleted it: the lab's network holds
    only what a client created.
    """

    lab: Lab
    _url_module: ClassVar[SimpleNamespace]

    def __init__(self, region_name: str, account_id: str) -> None:
        self.placement_groups = {}
        self.capacity_reservations, self.capacity_block_offerings = {}, {}
        self.propagation = Propagation()
        super().__init__(region_name, account_id)
        for everything in (
            self.vpcs,
            self.subnets,
            self.groups,
            self.route_tables,
            self.network_acls,
            self.dhcp_options_sets,
        ):
            everything.clear()
        self.tags.clear()
        self._launches: dict[str, tuple[launch.Parameters, Reservation]] = {}
        for family in FAMILIES:
            ami = ami_parameters.Ami(self, family)
            self.amis[ami.id] = ami

    def _load_amis(self) -> None:
        """Load none of moto's sample images: they cannot boot."""

    def describe_tags(self, filters: dict[str, list[str]] | None = None) -> list[dict[str, str]]:
        """Return tags like moto; for a single resource, look them up instead of searching all."""
        if filters and set(filters) == {"resource-id"} and len(filters["resource-id"]) == 1:
            (resource,) = filters["resource-id"]
            if "*" not in resource and "?" not in resource:
                kind = moto_utils.EC2_PREFIX_TO_RESOURCE.get(moto_utils.get_prefix(resource), "")
                return [
                    {"resource_id": resource, "key": k, "value": v, "resource_type": kind}
                    for k, v in self.tags.get(resource, {}).items()
                ]
        tags: list[dict[str, str]] = super().describe_tags(filters)
        return tags

    def describe_launch_templates(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return launch templates with the tags that they have now; moto keeps their first ones."""
        for template in self.launch_templates.values():
            template.tags = template.get_tags()
        templates: list[Any] = super().describe_launch_templates(*args, **kwargs)
        return templates

    def describe_instance_type_offerings(
        self, location_type: str | None = None, filters: dict[str, Any] | None = None
    ) -> list[dict[str, str]]:
        """Return moto's offerings with those that a fault adds, without those that one removes.

        moto applies the filters to each of thousands of offerings; those of other types are
        skipped before.
        """
        kind, filters = location_type or "region", filters or {}
        types = filters.get("instance-type")
        offers = [
            offer
            for offer in INSTANCE_TYPE_OFFERINGS[kind].get(self.region_name, ())
            if types is None or offer["InstanceType"] in types
        ]
        if kind == "availability-zone":
            offered = sorted({offer["InstanceType"] for offer in offers})
            offers += [
                {"InstanceType": name, "LocationType": kind, "Location": zone}
                for zone in self.lab.faults.arguments("local-zones") or ()
                if zone.startswith(f"{self.region_name}-")
                for name in offered
            ]
        withheld = self.lab.faults.withheld()
        return [
            offer
            for offer in offers
            if self.matches_filters(offer, filters, kind)
            and (offer["Location"], offer["InstanceType"]) not in withheld
        ]

    def describe_regions(self, region_names: list[str] | None = None) -> list[Any]:
        """Return the named regions, or those that a new account of AWS's main part has enabled."""
        regions: list[Any] = super().describe_regions(region_names)
        return [
            listed
            for listed in regions
            if region_names
            or (
                listed.opt_in_status == "opt-in-not-required"
                and not listed.name.startswith(("cn-", "us-gov-"))
            )
        ]

    # Networks

    def create_vpc(self, cidr_block: str, *args: Any, **kwargs: Any) -> Any:
        """Create the VPC, and add its address range to the lab's network."""
        most = self.lab.faults.number("vpc-limit")
        # The region's own one is made with it, at its first request.
        if most is not None and len(self.vpcs) >= most and not kwargs.get("is_default"):
            raise Refusal("VpcLimitExceeded", "The maximum number of VPCs has been reached.")
        vpc = super().create_vpc(cidr_block, *args, **kwargs)
        if not vpc.is_default:
            try:
                self.lab.machines.add_vpc(vpc.cidr_block)
            except LabError as error:
                super().delete_vpc(vpc.id)
                raise Refusal("InvalidVpc.Range", str(error)) from None
        return vpc

    def delete_vpc(self, vpc_id: str) -> Any:
        """Delete the VPC; DependencyViolation while it still contains resources."""
        attached = any(igw.vpc and igw.vpc.id == vpc_id for igw in self.internet_gateways.values())
        groups = any(not group.is_default for group in self.groups.get(vpc_id, {}).values())
        if attached or groups:
            raise in_use(f"The vpc '{vpc_id}' has dependencies and cannot be deleted.")
        vpc = super().delete_vpc(vpc_id)
        # moto leaves the VPC's default network ACL, which AWS deletes with it.
        for acl in [
            candidate for candidate in self.network_acls.values() if candidate.vpc_id == vpc_id
        ]:
            del self.network_acls[acl.id]
        self.lab.machines.remove_vpc(vpc.cidr_block)
        return vpc

    def create_subnet(self, vpc_id: str, cidr_block: str, *args: Any, **kwargs: Any) -> Any:
        """Create the subnet and its gateway; it assigns no public addresses by default."""
        subnet = super().create_subnet(vpc_id, cidr_block, *args, **kwargs)
        if self.vpcs[vpc_id].is_default:
            return subnet
        # moto makes the first subnet of a zone a default subnet.
        subnet.default_for_az = subnet.map_public_ip_on_launch = False
        subnet.__class__ = LabSubnet
        try:
            self.lab.machines.add_subnet(subnet.cidr_block)
        except LabError as error:
            super().delete_subnet(subnet.id)
            raise Refusal("InvalidSubnet.Range", str(error)) from None
        return subnet

    def delete_subnet(self, subnet_id: str) -> Any:
        """Delete the subnet; DependencyViolation while an interface is in it."""
        if any(eni.subnet.id == subnet_id for eni in self.enis.values()):
            raise in_use(f"The subnet '{subnet_id}' has dependencies and cannot be deleted.")
        subnet = super().delete_subnet(subnet_id)
        self.lab.machines.remove_subnet(subnet.cidr_block)
        return subnet

    def create_nat_gateway(self, *args: Any, **kwargs: Any) -> Any:
        """Create the gateway, pending for as long as the fault says."""
        gateway = super().create_nat_gateway(*args, **kwargs)
        if seconds := self.lab.faults.number("nat-pending"):
            gateway.state = "pending"
            gateway.ready = datetime.now(UTC) + timedelta(seconds=seconds)
        return gateway

    def describe_nat_gateways(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the gateways; those that were pending long enough are available."""
        for gateway in self.nat_gateways.values():
            if gateway.state == "pending" and datetime.now(UTC) >= gateway.ready:
                gateway.state = "available"
        gateways: list[Any] = super().describe_nat_gateways(*args, **kwargs)
        return gateways

    def _delete_security_group(self, vpc_id: str | None, group_id: str) -> None:
        used = any(group_id in [g.id for g in eni.group_set] for eni in self.enis.values())
        referred = any(
            rule.source_group.get("GroupId") == group_id
            for groups in self.groups.values()
            for group in groups.values()
            if group.id != group_id
            for rule in (*group.ingress_rules, *group.egress_rules)
            if rule.source_group
        )
        if used or referred:
            raise in_use(f"resource {group_id} has a dependent object")
        super()._delete_security_group(vpc_id, group_id)

    def detach_internet_gateway(self, internet_gateway_id: str, vpc_id: str) -> None:
        """Detach the gateway; DependencyViolation while the VPC has public addresses."""
        if any(eni.public_ip and eni.vpc_id == vpc_id for eni in self.enis.values()):
            raise in_use(
                f"Network {vpc_id} has some mapped public address(es). Please unmap those"
                " public address(es) before detaching the gateway."
            )
        super().detach_internet_gateway(internet_gateway_id, vpc_id)

    def create_network_interface(
        self,
        subnet: Any,
        private_ip_address: str | list[str] | None = None,
        *args: Any,
        takes_ip: bool = True,
        **kwargs: Any,
    ) -> NetworkInterface:
        """Create an interface with an address of its subnet, or with none (`efa-only`)."""
        subnet = self.get_subnet(subnet) if isinstance(subnet, str) else subnet
        if isinstance(private_ip_address, list):
            private_ip_address = private_ip_address[0] if private_ip_address else None
        if private_ip_address and ipaddress.ip_address(private_ip_address) in subnet.cidr:
            subnet.request_ip(private_ip_address, instance=None)
            address = private_ip_address
        elif takes_ip:
            address = subnet.get_available_subnet_ip(instance=None)
        else:
            address = str(subnet.cidr.network_address)  # a placeholder, dropped below
        given = {**dict(zip(_BY_POSITION, args, strict=False)), **kwargs}
        interface: NetworkInterface = NetworkInterface(self, subnet, address, **given)
        if not takes_ip:
            interface.drop_addresses()
        self.enis[interface.id] = interface
        return interface

    def delete_network_interface(self, eni_id: str) -> None:
        """Delete the interface and free its addresses."""
        interface = self.get_network_interface(eni_id)
        super().delete_network_interface(eni_id)
        self.tags.pop(eni_id, None)
        for address in interface.private_ip_addresses:
            interface.subnet.del_subnet_ip(address["PrivateIpAddress"])

    # Instances

    def launch(self, request: launch.Parameters) -> Reservation:
        """Launch pending instances; a repeated ClientToken returns the first answer again."""
        token = str(request.get("ClientToken") or "")
        if token in self._launches:
            first_request, earlier = self._launches[token]
            if first_request != request:
                raise Refusal(
                    "IdempotentParameterMismatch",
                    "Arguments on this idempotent request are inconsistent with arguments used in"
                    " previous request(s).",
                )
            return earlier
        order = launch.resolve(self, request)
        reservation = Reservation(moto_utils.random_reservation_id(), self.account_id)
        self.reservations[reservation.id] = reservation
        for index in range(order.count):
            instance = Instance(self, order, index)
            reservation.instances.append(instance)
            for device, volume, delete_on_termination in instance.volumes_to_create():
                made = self.create_volume(**volume)
                made.add_tags(order.tags.get("volume", {}))
                self.attach_volume(made.id, instance.id, device, delete_on_termination)
        if token:
            self._launches[token] = (request, reservation)
        if self.lab.faults.arguments("vpc-endpoint") is not None:
            guardduty.put_endpoint(self, order.subnet)
        for instance in tuple(reservation.instances):
            self.lab.machines.launch(instance.machine(), self)
        return reservation

    def terminate_instances(self, instance_ids: Sequence[str]) -> list[tuple[Instance, str]]:
        """Terminate the instances, even terminated ones; return each with its former state."""
        return self._shut_down(instance_ids, "terminated")

    def stop_instances(self, instance_ids: Sequence[str]) -> list[tuple[Instance, str]]:
        """Stop the instances; return each with its former state."""
        return self._shut_down(instance_ids, "stopped")

    def start_instances(self, instance_ids: Sequence[str]) -> list[tuple[Instance, str]]:
        """Start the stopped instances; return each with its former state."""
        instances = self.get_multi_instances_by_id(list(instance_ids))
        for instance in instances:
            if instance.state not in ("stopped", "running", "pending"):
                raise Refusal(
                    "IncorrectInstanceState",
                    f"The instance '{instance.id}' is not in a state from which it can be started.",
                )
        before = [(instance, instance.state) for instance in instances]
        for instance, state in before:
            if state == "stopped":
                instance.become("pending")
                self.lab.machines.start(instance.id, self)
        return before

    def _shut_down(self, instance_ids: Sequence[str], end: str) -> list[tuple[Instance, str]]:
        if not instance_ids:
            raise bad_combination("No instances specified")
        instances = self.get_multi_instances_by_id(list(instance_ids))
        for instance in instances:
            _check_shutdown_allowed(instance, end)
        before = [(instance, instance.state) for instance in instances]
        for instance, state in before:
            if state in ("terminated", "shutting-down") or (end, state) == ("stopped", "stopped"):
                continue
            way = "shutting-down" if end == "terminated" else "stopping"
            instance.become(way, BY_USER, f"{BY_USER}: User initiated shutdown")
            if state == "stopped":
                self.machine_ended(instance.id, None)
            else:
                self.lab.machines.power_off(instance.id)
        return before

    def machine_running(self, instance_id: str) -> None:
        """Record that a pending instance's machine runs."""
        with self.lab.lock:
            instance = self.get_instance(instance_id)
            if instance.state == "pending":
                instance.become("running")

    def machine_ended(self, instance_id: str, failure: str | None) -> None:
        """Record that the machine ended: on request, by its own shutdown, or with `failure`."""
        with self.lab.lock:
            instance = self.get_instance(instance_id)
            if instance.state in ("terminated", "stopped"):
                return
            code, text = instance.state_reason.code, instance.state_reason.message
            end = "stopped" if instance.state == "stopping" else "terminated"
            if failure:
                end, code = "terminated", "Server.InternalError"
                text = f"{code}: {failure}"
            elif instance.state in ("pending", "running"):
                # No client asked for it: the machine powered itself off.
                code, text = SHUTDOWN, f"{SHUTDOWN}: Instance initiated shutdown"
                if instance.instance_initiated_shutdown_behavior != "terminate":
                    end = "stopped"
            instance.become(end, code, text)
            if end == "terminated":
                instance.release_resources()
                self.lab.machines.remove(instance_id)

    def modify_instance_security_groups(self, instance_id: str, groups: list[str]) -> Instance:
        """Set the security groups of the primary interface."""
        instance: Instance = super().modify_instance_security_groups(instance_id, groups)
        instance.nics[0]._group_set = list(instance.security_groups)
        return instance


def _check_shutdown_allowed(instance: Instance, end: str) -> None:
    if end == "terminated" and instance.disable_api_termination is True:
        raise Refusal(
            "OperationNotPermitted",
            f"The instance '{instance.id}' may not be terminated. Modify its"
            " 'disableApiTermination' instance attribute and try again.",
        )
    if end == "stopped" and instance.state in ("terminated", "shutting-down"):
        raise Refusal(
            "IncorrectInstanceState",
            f"This instance '{instance.id}' is not in a state from which it can be stopped.",
        )


class LabSubnet(MotoSubnet):  # type: ignore[misc]  # moto is untyped here
    """A subnet that reserves AWS's addresses, and has an error for no free address."""

    @property
    def available_ip_address_count(self) -> int:
        """The number of free addresses; 0 if a fault says so."""
        if self.ec2_backend.lab.faults.arguments("no-free-address") is not None:
            return 0
        return int(super().available_ip_address_count)

    def check_free(self, address: str) -> None:
        """Raise InvalidIPAddress.InUse or InvalidParameterValue if the address is not free."""
        ip = ipaddress.IPv4Address(address)
        edges = {self.cidr.network_address, self.cidr.broadcast_address, *self.aws_reserved_ips}
        if ip not in self.cidr or ip in edges:
            raise Refusal(
                "InvalidParameterValue",
                f"Address {address} does not fall within the subnet's address range",
            )
        if address in self._subnet_ips:
            raise Refusal("InvalidIPAddress.InUse", f"Address {address} is in use.")

    def request_ip(self, ip: str, instance: Any) -> None:
        """Take the address; raise the errors of `check_free`."""
        self.check_free(ip)
        self._unused_ips.discard(ip)
        self._subnet_ips[ip] = instance

    def get_available_subnet_ip(self, instance: Any) -> str:
        """Return the next free address; InsufficientFreeAddressesInSubnet if there is none."""
        try:
            return str(super().get_available_subnet_ip(instance))
        except (StopIteration, RuntimeError):
            raise Refusal(
                "InsufficientFreeAddressesInSubnet",
                f"The subnet '{self.id}' has no free address.",
            ) from None
