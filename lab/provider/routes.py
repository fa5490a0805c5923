"""Route tables, and their associations with subnets."""

from typing import Any

from lab.provider.resource import Resource, first, tag_specifications, tags_of
from lab.provider.values import Properties

_TARGETS = {"gatewayId": "GatewayId", "natGatewayId": "NatGatewayId"}


class RouteTable(Resource):
    """`aws.ec2.RouteTable` with inline routes, in addition to the VPC's main table."""

    token = "aws:ec2/routeTable:RouteTable"  # noqa: S105 Pulumi's word for a type's name
    title = "EC2 Route Table"
    lookup = ("describe_route_tables", "RouteTableIds", "RouteTables")
    removal = ("delete_route_table", "RouteTableId")
    required = frozenset({"vpcId"})
    replacing = frozenset({"vpcId"})
    updating = frozenset({"routes", "tags"})
    computed = frozenset({"arn"})

    def problems(self, inputs: Properties) -> dict[str, str]:
        """Return a problem if a route has more than an IPv4 range and a gateway."""
        for index, route in enumerate(inputs.get("routes") or []):
            if unknown := set(route) - {"cidrBlock", *_TARGETS}:
                return {f"routes[{index}]": f"the lab has no {sorted(unknown)[0]} in a route"}
        return {}

    def create(self, inputs: Properties) -> str:
        """Create the table; return its id."""
        made = self.ec2.create_route_table(
            VpcId=inputs["vpcId"], TagSpecifications=tag_specifications("route-table", inputs)
        )
        return made["RouteTable"]["RouteTableId"]

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Add its routes."""
        for route in inputs.get("routes") or []:
            self.ec2.create_route(RouteTableId=resource_id, **_request(route))

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return the routes and the tags; equal routes keep the order of `state`."""
        routes = [_route(r) for r in actual["Routes"] if r.get("GatewayId") != "local"]
        known = state.get("routes") or []
        if sorted(map(_key, routes)) == sorted(map(_key, known)):
            routes = known
        return {"vpcId": actual["VpcId"], "routes": routes, "tags": tags_of(actual)}

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Change the routes and the tags."""
        old = {route["cidrBlock"]: route for route in state.get("routes") or []}
        new = {route["cidrBlock"]: route for route in inputs.get("routes") or []}
        for cidr, route in new.items():
            if cidr not in old:
                self.ec2.create_route(RouteTableId=resource_id, **_request(route))
            elif _key(route) != _key(old[cidr]):
                self.ec2.replace_route(RouteTableId=resource_id, **_request(route))
        for cidr in old.keys() - new.keys():
            self.ec2.delete_route(RouteTableId=resource_id, DestinationCidrBlock=cidr)
        self.retag(resource_id, state, inputs)


def _request(route: Properties) -> dict[str, Any]:
    """Return a route as CreateRoute and ReplaceRoute accept it."""
    targets = {aws: route[name] for name, aws in _TARGETS.items() if route.get(name)}
    return {"DestinationCidrBlock": route["cidrBlock"], **targets}


def _route(aws: Any) -> Properties:
    targets = {name: aws[key] for name, key in _TARGETS.items() if aws.get(key)}
    return {"cidrBlock": aws.get("DestinationCidrBlock", ""), **targets}


def _key(route: Properties) -> tuple[str, ...]:
    return (route.get("cidrBlock", ""), *(route.get(name) or "" for name in _TARGETS))


class RouteTableAssociation(Resource):
    """`aws.ec2.RouteTableAssociation`: a subnet uses a table."""

    token = "aws:ec2/routeTableAssociation:RouteTableAssociation"  # noqa: S105
    title = "EC2 Route Table Association"
    removal = ("disassociate_route_table", "AssociationId")
    required = frozenset({"routeTableId", "subnetId"})
    # AWS can move a subnet to another table in place, but that changes the id, so here it is a
    # replacement. The program never does it.
    replacing = frozenset({"routeTableId", "subnetId"})
    updating = frozenset()

    def create(self, inputs: Properties) -> str:
        """Associate the subnet with the table; return the association's id."""
        made = self.ec2.associate_route_table(
            RouteTableId=inputs["routeTableId"], SubnetId=inputs["subnetId"]
        )
        return made["AssociationId"]

    def read(self, resource_id: str, state: Properties) -> Properties | None:
        """Return the table that the subnet uses."""
        where = [{"Name": "association.route-table-association-id", "Values": [resource_id]}]
        table = first(
            lambda: self.ec2.describe_route_tables(Filters=where)["RouteTables"]  # type: ignore[arg-type]
        )
        if table is None:
            return None
        for association in table["Associations"]:
            if association["RouteTableAssociationId"] == resource_id:
                subnet = association.get("SubnetId")
                return {**state, "routeTableId": table["RouteTableId"], "subnetId": subnet}
        return None
