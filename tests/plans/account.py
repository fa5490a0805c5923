"""What is in the account before a mode is planned: reservations, blocks, networks of the user's.

The files of `modes/` name such things by ids that stand in for them, and so do the golden plans.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.infra.somebodys_network import SomebodysNetwork

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

P4D = "p4d.24xlarge"
RESERVATION = "cr-00000000000000001"
VPC, NODES, PUBLIC = (
    "vpc-00000000000000001",
    "subnet-00000000000000001",
    "subnet-00000000000000002",
)


@contextmanager
def _reservation(ec2: "EC2Client") -> Iterator[dict[str, str]]:
    made = ec2.create_capacity_reservation(
        InstanceType=P4D,
        InstancePlatform="Linux/UNIX",
        AvailabilityZone="us-west-2b",
        InstanceCount=2,
        InstanceMatchCriteria="targeted",
    )["CapacityReservation"]["CapacityReservationId"]
    yield {RESERVATION: made}
    ec2.cancel_capacity_reservation(CapacityReservationId=made)


@contextmanager
def _block(ec2: "EC2Client") -> Iterator[dict[str, str]]:
    offers = ec2.describe_capacity_block_offerings(
        InstanceType=P4D,
        InstanceCount=2,
        CapacityDurationHours=24,
        StartDateRange=datetime.now(UTC),
    )["CapacityBlockOfferings"]
    (offer,) = [o for o in offers if o["AvailabilityZone"] == "us-west-2c"]
    made = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offer["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )["CapacityReservation"]["CapacityReservationId"]
    yield {RESERVATION: made}  # nobody can cancel a block


@contextmanager
def _network(ec2: "EC2Client") -> Iterator[dict[str, str]]:
    """A VPC with a subnet for nodes in one zone, and a public one in another."""
    theirs = SomebodysNetwork.make(ec2)
    public = theirs.public("10.40.0.0/24", "us-west-2b")
    nodes = theirs.private("10.40.1.0/24", theirs.nat(public), "us-west-2d")
    yield {VPC: theirs.vpc, NODES: nodes, PUBLIC: public}


@contextmanager
def _nothing(ec2: "EC2Client") -> Iterator[dict[str, str]]:
    yield {}


_THERE = {
    "capacity-reservation": _reservation,
    "capacity-block": _block,
    "network-vpc": _network,
    "network-subnet": _network,
}


@contextmanager
def prepared(mode: str, ec2: "EC2Client") -> Iterator[dict[str, str]]:
    """Until the end of this there is what the mode needs: its real ids by those in the file."""
    with _THERE.get(mode, _nothing)(ec2) as ids:
        yield ids
