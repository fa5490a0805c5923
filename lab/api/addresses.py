"""Elastic IPs and NAT gateways with addresses of the lab's public range.

moto invents random addresses, some of which belong to other people.
"""

from typing import Any

from moto.ec2.utils import generic_filter

from lab.api.errors import Refusal, bad_value
from lab.api.region import Lab


class Addresses:
    """Elastic IPs and NAT gateways of a region; part of the lab's EC2 backend."""

    lab: Lab
    addresses: list[Any]
    nat_gateways: dict[str, Any]

    def allocate_address(
        self, domain: str, address: str | None = None, tags: dict[str, str] | None = None
    ) -> Any:
        """Allocate an Elastic IP of the lab's range; AddressLimitExceeded beyond the quota."""
        most = self.lab.faults.number("elastic-ip-limit")
        if most is not None and len(self.addresses) >= most:
            raise Refusal(
                "AddressLimitExceeded", "The maximum number of addresses has been reached."
            )
        return super().allocate_address(  # type: ignore[misc]
            domain, address=self.lab.addresses.take(address), tags=tags
        )

    def release_address(self, address: str | None = None, allocation_id: str | None = None) -> None:
        """Release the Elastic IP; InvalidIPAddress.InUse while it is associated."""
        elastic_ip = self._address(address, allocation_id)
        if elastic_ip.association_id:
            raise Refusal("InvalidIPAddress.InUse", f"Address {elastic_ip.public_ip} is in use.")
        super().release_address(address=elastic_ip.public_ip)  # type: ignore[misc]
        self.lab.addresses.give_back(elastic_ip.public_ip)

    def associate_address(
        self,
        instance: Any = None,
        eni: Any = None,
        address: str | None = None,
        allocation_id: str | None = None,
        reassociate: bool = False,
    ) -> Any:
        """Associate the Elastic IP with the interface, and route it to the interface's machine."""
        if instance and len(instance.nics) > 1:
            raise Refusal(
                "InvalidInstanceID",
                f"There are multiple interfaces attached to instance '{instance.id}'. Please"
                " specify an interface ID for the operation instead.",
            )
        eni = eni or instance.nics[0]
        if not eni.private_ip_addresses:
            # AWS publishes no text: an Elastic IP needs a private address to be mapped to.
            raise bad_value(f"Network interface '{eni.id}' (efa-only) has no private IP address.")
        elastic_ip = self._address(address, allocation_id)
        if elastic_ip.association_id and elastic_ip.eni is not eni:
            if not reassociate:
                raise Refusal(
                    "Resource.AlreadyAssociated",
                    f"resource {elastic_ip.allocation_id} is already associated with associate-id"
                    f" {elastic_ip.association_id}",
                )
            self.disassociate_address(address=elastic_ip.public_ip)
        eni.stop()  # releases an automatic public address
        eip = super().associate_address(  # type: ignore[misc]
            eni.instance, eni, address=elastic_ip.public_ip, reassociate=True
        )
        if eni.instance:
            self.lab.machines.add_public_ip(eni.instance.id, elastic_ip.public_ip)
        return eip

    def disassociate_address(
        self, address: str | None = None, association_id: str | None = None
    ) -> None:
        """Disassociate the Elastic IP from its interface."""
        eip = next(
            (
                a
                for a in self.addresses
                if a.public_ip == address or (association_id and a.association_id == association_id)
            ),
            None,
        )
        if eip is None:
            raise Refusal(
                "InvalidAssociationID.NotFound",
                f"The association ID '{association_id or address}' does not exist",
            )
        if eip.eni:
            eip.eni.public_ip = None
            if eip.eni.instance and eip.eni.instance.state == "running":
                self.lab.machines.remove_public_ip(eip.eni.instance.id, eip.public_ip)
        eip.eni = eip.instance = eip.association_id = None

    def _address(self, address: str | None, allocation_id: str | None) -> Any:
        for eip in self.addresses:
            if (allocation_id and eip.allocation_id == allocation_id) or eip.public_ip == address:
                return eip
        if allocation_id:
            raise Refusal(
                "InvalidAllocationID.NotFound",
                f"The allocation ID '{allocation_id}' does not exist",
            )
        raise Refusal("InvalidAddress.NotFound", f"Address '{address}' not found.")

    def create_nat_gateway(
        self,
        subnet_id: str,
        allocation_id: str | None,
        tags: dict[str, str] | None = None,
        connectivity_type: str | None = None,
    ) -> Any:
        """Create a NAT gateway with an address of its subnet.

        It carries no packets: the lab's NAT does, and only for package downloads.
        """
        kind = connectivity_type or "public"
        if kind == "public":
            if not allocation_id:
                raise Refusal(
                    "MissingParameter", "The request must contain the parameter AllocationId"
                )
            if (eip := self._address(None, allocation_id)).association_id:
                raise Refusal(
                    "Resource.AlreadyAssociated",
                    f"resource {allocation_id} is already associated with associate-id"
                    f" {eip.association_id}",
                )
        gateway = super().create_nat_gateway(  # type: ignore[misc]
            subnet_id, allocation_id, tags, kind
        )
        gateway.private_ip = gateway._eni.private_ip_address
        gateway._eni.interface_type = "nat_gateway"
        gateway._eni.status = "in-use"
        return gateway

    def delete_nat_gateway(self, nat_gateway_id: str) -> Any:
        """Mark the gateway `deleted`, delete its interface and disassociate its Elastic IP."""
        (gateway,) = self.describe_nat_gateways(None, [nat_gateway_id])
        if gateway.state != "deleted":
            for eip in self.addresses:
                if eip.eni is gateway._eni:
                    self.disassociate_address(address=eip.public_ip)
            self.delete_network_interface(gateway._eni.id)  # type: ignore[attr-defined]
            gateway.state = "deleted"
        return gateway

    def describe_nat_gateways(
        self, filters: dict[str, list[str]] | None, nat_gateway_ids: list[str] | None
    ) -> list[Any]:
        """Return gateways by id and filter, including filters by tag (moto ignores those)."""
        for gateway_id in nat_gateway_ids or ():
            if gateway_id not in self.nat_gateways:
                raise Refusal("NatGatewayNotFound", f"The Nat Gateway {gateway_id} was not found")
        chosen = nat_gateway_ids or list(self.nat_gateways)
        rest = dict(filters or {})
        if only := rest.pop("nat-gateway-id", None):
            chosen = [gateway for gateway in chosen if gateway in only]
        gateways: list[Any] = generic_filter(rest, [self.nat_gateways[g] for g in chosen])
        return gateways
