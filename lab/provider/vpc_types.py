"""VPCs, subnets, gateways and addresses."""

from ipaddress import IPv4Network
from typing import Any

from lab.provider.resource import Resource, tag_specifications, tags_of, wait
from lab.provider.values import UNKNOWN, Properties


def _cidr_problem(inputs: Properties) -> dict[str, str]:
    cidr = inputs.get("cidrBlock", UNKNOWN)
    if cidr == UNKNOWN:
        return {}
    try:
        IPv4Network(cidr)
    except ValueError as error:
        return {"cidrBlock": f'"{cidr}" is not a valid CIDR block: {error}'}
    return {}


class Vpc(Resource):
    """`aws.ec2.Vpc`."""

    token = "aws:ec2/vpc:Vpc"  # noqa: S105 Pulumi's word for a type's name
    title = "EC2 VPC"
    lookup = ("describe_vpcs", "VpcIds", "Vpcs")
    removal = ("delete_vpc", "VpcId")
    in_use_s = 300.0
    required = frozenset({"cidrBlock"})
    replacing = frozenset({"cidrBlock"})
    updating = frozenset({"enableDnsSupport", "enableDnsHostnames", "tags"})
    computed = frozenset({"arn", "defaultSecurityGroupId", "mainRouteTableId"})

    def problems(self, inputs: Properties) -> dict[str, str]:
        """Return a problem if the address range is not valid."""
        return _cidr_problem(inputs)

    def create(self, inputs: Properties) -> str:
        """Create the VPC; return its id."""
        made = self.ec2.create_vpc(
            CidrBlock=inputs["cidrBlock"], TagSpecifications=tag_specifications("vpc", inputs)
        )
        return made["Vpc"]["VpcId"]

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Set the DNS attributes that are not those of a new VPC; AWS changes one per call."""
        if not inputs.get("enableDnsSupport", True):
            self.ec2.modify_vpc_attribute(VpcId=resource_id, EnableDnsSupport={"Value": False})
        if inputs.get("enableDnsHostnames"):
            self.ec2.modify_vpc_attribute(VpcId=resource_id, EnableDnsHostnames={"Value": True})

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return the range, the DNS attributes and the tags."""
        vpc = actual["VpcId"]
        support = self.ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsSupport")
        names = self.ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsHostnames")
        return {
            "cidrBlock": actual["CidrBlock"],
            "enableDnsSupport": support["EnableDnsSupport"]["Value"],
            "enableDnsHostnames": names["EnableDnsHostnames"]["Value"],
            "tags": tags_of(actual),
        }


class Subnet(Resource):
    """`aws.ec2.Subnet`."""

    token = "aws:ec2/subnet:Subnet"  # noqa: S105
    title = "EC2 Subnet"
    lookup = ("describe_subnets", "SubnetIds", "Subnets")
    removal = ("delete_subnet", "SubnetId")
    in_use_s = 1200.0
    required = frozenset({"vpcId", "cidrBlock"})
    replacing = frozenset({"vpcId", "cidrBlock", "availabilityZone"})
    updating = frozenset({"mapPublicIpOnLaunch", "tags"})
    computed = frozenset({"arn", "availabilityZone", "availabilityZoneId"})

    def problems(self, inputs: Properties) -> dict[str, str]:
        """Return a problem if the address range is not valid."""
        return _cidr_problem(inputs)

    def create(self, inputs: Properties) -> str:
        """Create the subnet; return its id."""
        zone = inputs.get("availabilityZone")
        made = self.ec2.create_subnet(
            VpcId=inputs["vpcId"],
            CidrBlock=inputs["cidrBlock"],
            **({"AvailabilityZone": zone} if zone else {}),
            TagSpecifications=tag_specifications("subnet", inputs),
        )
        return made["Subnet"]["SubnetId"]

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Have instances get public addresses at launch, unless they get none."""
        if inputs.get("mapPublicIpOnLaunch"):
            self.ec2.modify_subnet_attribute(
                SubnetId=resource_id, MapPublicIpOnLaunch={"Value": True}
            )

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return its VPC, range, zone, attribute and tags."""
        return {
            "vpcId": actual["VpcId"],
            "cidrBlock": actual["CidrBlock"],
            "availabilityZone": actual["AvailabilityZone"],
            "availabilityZoneId": actual.get("AvailabilityZoneId"),
            "mapPublicIpOnLaunch": actual["MapPublicIpOnLaunch"],
            "tags": tags_of(actual),
        }


class InternetGateway(Resource):
    """`aws.ec2.InternetGateway`, attached to its VPC."""

    token = "aws:ec2/internetGateway:InternetGateway"  # noqa: S105
    title = "EC2 Internet Gateway"
    lookup = ("describe_internet_gateways", "InternetGatewayIds", "InternetGateways")
    in_use_s = 1200.0
    updating = frozenset({"vpcId", "tags"})
    computed = frozenset({"arn"})

    def create(self, inputs: Properties) -> str:
        """Create the gateway without attaching it; return its id."""
        made = self.ec2.create_internet_gateway(
            TagSpecifications=tag_specifications("internet-gateway", inputs)
        )
        return made["InternetGateway"]["InternetGatewayId"]

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Attach it to its VPC."""
        if vpc := inputs.get("vpcId"):
            self.ec2.attach_internet_gateway(InternetGatewayId=resource_id, VpcId=vpc)

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return the VPC that it is attached to, and its tags."""
        attached = [a["VpcId"] for a in actual["Attachments"]]
        return {"vpcId": attached[0] if attached else None, "tags": tags_of(actual)}

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Attach it to the new VPC and change the tags."""
        if state.get("vpcId") != inputs.get("vpcId"):
            self._detach(resource_id, state)
            self.complete(resource_id, inputs)
        self.retag(resource_id, state, inputs)

    def delete(self, resource_id: str, state: Properties) -> None:
        """Detach and delete the gateway."""
        self._detach(resource_id, self.read(resource_id, state) or {})
        self.ec2.delete_internet_gateway(InternetGatewayId=resource_id)

    def _detach(self, resource_id: str, state: Properties) -> None:
        if vpc := state.get("vpcId"):
            self.ec2.detach_internet_gateway(InternetGatewayId=resource_id, VpcId=vpc)


class Eip(Resource):
    """`aws.ec2.Eip`: an Elastic IP address, associated with an interface if one is named."""

    token = "aws:ec2/eip:Eip"  # noqa: S105
    title = "EC2 EIP"
    lookup = ("describe_addresses", "AllocationIds", "Addresses")
    replacing = frozenset({"domain"})
    updating = frozenset({"networkInterface", "tags"})
    computed = frozenset({"allocationId", "arn", "publicIp"})

    def create(self, inputs: Properties) -> str:
        """Allocate the address; return its allocation id."""
        made = self.ec2.allocate_address(
            Domain=inputs.get("domain", "vpc"),
            TagSpecifications=tag_specifications("elastic-ip", inputs),
        )
        return made["AllocationId"]

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Associate it with the interface."""
        if interface := inputs.get("networkInterface"):
            self.ec2.associate_address(AllocationId=resource_id, NetworkInterfaceId=interface)

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return the address, its interface and its tags."""
        properties = {
            "allocationId": actual["AllocationId"],
            "domain": actual["Domain"],
            "publicIp": actual["PublicIp"],
            "tags": tags_of(actual),
        }
        if "networkInterface" in state:
            # An owner that the inputs do not name, such as a NAT gateway, is no drift.
            properties["networkInterface"] = actual.get("NetworkInterfaceId")
        return properties

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Change the interface and the tags."""
        if state.get("networkInterface") != inputs.get("networkInterface"):
            self._disassociate(resource_id, state)
            self.complete(resource_id, inputs)
        self.retag(resource_id, state, inputs)

    def delete(self, resource_id: str, state: Properties) -> None:
        """Release the address."""
        self._disassociate(resource_id, state)
        self.ec2.release_address(AllocationId=resource_id)

    def _disassociate(self, resource_id: str, state: Properties) -> None:
        if state.get("networkInterface"):
            addresses = self.ec2.describe_addresses(AllocationIds=[resource_id])["Addresses"]
            if association := addresses[0].get("AssociationId"):
                self.ec2.disassociate_address(AssociationId=association)


class NatGateway(Resource):
    """`aws.ec2.NatGateway`: the private subnet's way to the Internet."""

    token = "aws:ec2/natGateway:NatGateway"  # noqa: S105
    title = "EC2 NAT Gateway"
    lookup = ("describe_nat_gateways", "NatGatewayIds", "NatGateways")
    ended = ("deleted", "deleting", "failed")
    removal = ("delete_nat_gateway", "NatGatewayId")
    required = frozenset({"subnetId"})
    replacing = frozenset({"subnetId", "allocationId"})
    computed = frozenset({"privateIp", "publicIp", "networkInterfaceId"})

    def create(self, inputs: Properties) -> str:
        """Create the gateway; return its id."""
        allocation = inputs.get("allocationId")
        made = self.ec2.create_nat_gateway(
            SubnetId=inputs["subnetId"],
            **({"AllocationId": allocation} if allocation else {}),
            TagSpecifications=tag_specifications("natgateway", inputs),
        )
        return made["NatGateway"]["NatGatewayId"]

    def is_known(self, resource_id: str, inputs: Properties) -> bool:
        """Return whether EC2 knows the gateway, also one that failed."""
        return self.describe(resource_id) is not None

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Wait until it is available."""
        wait(lambda: self._state(resource_id) == "available", "the NAT gateway to be available")

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return its subnet, addresses and tags."""
        address = (actual.get("NatGatewayAddresses") or [{}])[0]
        return {
            "subnetId": actual["SubnetId"],
            "allocationId": address.get("AllocationId"),
            "privateIp": address.get("PrivateIp"),
            "publicIp": address.get("PublicIp"),
            "networkInterfaceId": address.get("NetworkInterfaceId"),
            "tags": tags_of(actual),
        }

    def delete(self, resource_id: str, state: Properties) -> None:
        """Delete the gateway, and wait until it is deleted: then its address can be released."""
        super().delete(resource_id, state)
        gone = (None, "deleted")
        wait(lambda: self._state(resource_id) in gone, "the NAT gateway to be deleted")

    def _state(self, resource_id: str) -> str | None:
        return (self.describe(resource_id) or {}).get("State")
