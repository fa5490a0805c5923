"""A network that somebody made before gpuctl came: a VPC with a gateway, subnets and routes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


@dataclass(frozen=True)
class SomebodysNetwork:
    """A VPC whose main route table goes nowhere; nothing of it has a tag of gpuctl's."""

    ec2: "EC2Client"
    vpc: str
    gateway: str

    @classmethod
    def make(cls, ec2: "EC2Client", cidr: str = "10.40.0.0/16") -> Self:
        """The VPC exists, with an internet gateway."""
        vpc = ec2.create_vpc(CidrBlock=cidr)["Vpc"]["VpcId"]
        gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
        return cls(ec2, vpc, gateway)

    def subnet(self, cidr: str, zone: str = "us-east-1a") -> str:
        """A subnet that follows the main route table; its id."""
        made = self.ec2.create_subnet(VpcId=self.vpc, CidrBlock=cidr, AvailabilityZone=zone)
        return made["Subnet"]["SubnetId"]

    def public(self, cidr: str, zone: str = "us-east-1a") -> str:
        """A subnet with a default route to the internet gateway; its id."""
        subnet = self.subnet(cidr, zone)
        self._route(subnet, GatewayId=self.gateway)
        return subnet

    def private(self, cidr: str, nat: str, zone: str = "us-east-1a") -> str:
        """A subnet with a default route to the NAT gateway; its id."""
        subnet = self.subnet(cidr, zone)
        self._route(subnet, NatGatewayId=nat)
        return subnet

    def nat(self, public: str) -> str:
        """A NAT gateway in the public subnet; its id."""
        address = self.ec2.allocate_address(Domain="vpc")["AllocationId"]
        made = self.ec2.create_nat_gateway(SubnetId=public, AllocationId=address)
        return made["NatGateway"]["NatGatewayId"]

    @property
    def all(self) -> list[str]:
        """What there is of it, by id."""
        mine: Any = [{"Name": "vpc-id", "Values": [self.vpc]}]
        attached: Any = [{"Name": "attachment.vpc-id", "Values": [self.vpc]}]
        ec2 = self.ec2
        return sorted(
            [
                *(one["VpcId"] for one in ec2.describe_vpcs(Filters=mine)["Vpcs"]),
                *(one["SubnetId"] for one in ec2.describe_subnets(Filters=mine)["Subnets"]),
                *(
                    one["RouteTableId"]
                    for one in ec2.describe_route_tables(Filters=mine)["RouteTables"]
                ),
                *(
                    one["InternetGatewayId"]
                    for one in ec2.describe_internet_gateways(Filters=attached)["InternetGateways"]
                ),
                *(
                    f"{one['NatGatewayId']} {one['State']}"
                    for one in ec2.describe_nat_gateways(Filters=mine)["NatGateways"]
                ),
                *(one["AllocationId"] for one in ec2.describe_addresses()["Addresses"]),
            ]
        )

    def _route(self, subnet: str, **target: str) -> None:
        table = self.ec2.create_route_table(VpcId=self.vpc)["RouteTable"]["RouteTableId"]
        self.ec2.create_route(
            RouteTableId=table,
            DestinationCidrBlock="0.0.0.0/0",
            **target,  # type: ignore[arg-type]
        )
        self.ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
