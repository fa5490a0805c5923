"""GuardDuty's runtime monitoring: it puts an endpoint into a VPC in which an instance starts.

Names and tags are AWS's: https://github.com/hashicorp/terraform-provider-aws/pull/46953
(2026-11-22).
"""

from typing import Any

_TAGS = {"GuardDutyManaged": "true"}


def put_endpoint(backend: Any, subnet: Any) -> None:
    """Create the endpoint and its security group, unless the VPC has them."""
    vpc = subnet.vpc_id
    if any(
        point.vpc_id == vpc and point.state != "deleted"
        for point in backend.vpc_end_points.values()
    ):
        return
    group = backend.create_security_group(
        f"GuardDutyManagedSecurityGroup-{vpc}", f"Associated with VPC-{vpc}", vpc, _TAGS
    )
    made = backend.create_vpc_endpoint(
        vpc,
        f"com.amazonaws.{backend.region_name}.guardduty-data",
        "Interface",
        None,
        [],
        subnet_ids=[subnet.id],
        security_group_ids=[group.id],
        tags=_TAGS,
    )
    for interface in made.network_interface_ids:
        backend.enis[interface]._group_set = [group]
