"""EC2's description of a capacity reservation."""

from typing import TYPE_CHECKING, Any

from config.errors import CloudError
from provision.aws.clients import aws_errors

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

UNKNOWN = "InvalidCapacityReservationId.NotFound"
"""EC2's code for a reservation that does not exist, or that a part of EC2 does not know yet."""


def describe_reservation(ec2: "EC2Client", reservation_id: str, *, is_new: bool = False) -> Any:
    """Return EC2's description of the reservation.

    With `is_new` it is empty while a part of EC2 does not know the reservation; without, that is a
    CloudError with the code UNKNOWN.
    """
    try:
        with aws_errors():
            answer = ec2.describe_capacity_reservations(CapacityReservationIds=[reservation_id])
    except CloudError as error:
        if is_new and error.code == UNKNOWN:
            return {}
        raise
    return answer["CapacityReservations"][0]
