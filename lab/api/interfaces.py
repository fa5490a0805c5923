"""Network interfaces per network card: EC2's rules for a launch, and the interfaces.

moto keys an instance's interfaces by device index and drops type and card. Source of the rules:
"Maximize network bandwidth on Amazon EC2 instances with multiple network cards" (EC2 User Guide)
and RunInstances' reference, both read 2026-11-20.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moto.ec2.models.elastic_network_interfaces import Attachment as MotoAttachment
from moto.ec2.models.elastic_network_interfaces import NetworkInterface as MotoInterface

from lab.api.errors import Refusal, bad_combination, bad_value, unsupported

TYPES = ("interface", "efa", "efa-only")

MULTIPLE_INTERFACES = (
    "The associatePublicIPAddress parameter cannot be specified when launching with multiple"
    " network interfaces."
)


@dataclass(frozen=True)
class InterfaceRequest:
    """A launch's request for one network interface. `public_ip` None: the subnet's default."""

    card: int
    device: int
    type: str
    subnet_id: str | None
    groups: tuple[str, ...]
    private_ip: str | None
    public_ip: bool | None
    delete_on_termination: bool
    description: str

    @property
    def takes_ip(self) -> bool:
        """Return whether the interface has an address: an efa-only one has none."""
        return self.type != "efa-only"

    @property
    def is_efa(self) -> bool:
        """Return whether it uses the card's only EFA."""
        return self.type in ("efa", "efa-only")


def parse(item: Mapping[str, Any]) -> InterfaceRequest:
    """Return the request of one `NetworkInterfaces` entry; Refusal if EC2 or the lab lacks it."""
    if item.get("NetworkInterfaceId"):
        raise unsupported("The lab launches no instance on an existing network interface.")
    if item.get("DeviceIndex") is None:
        raise bad_value("Each network interface requires a device index.")
    kind = item.get("InterfaceType") or "interface"
    if kind not in TYPES:
        raise bad_value(
            f"Value ({kind}) for parameter interfaceType is invalid."
            f" Allowed values are {', '.join(TYPES)}."
        )
    addresses = item.get("PrivateIpAddresses") or []
    primary = next((a["PrivateIpAddress"] for a in addresses if a.get("Primary")), None)
    public = item.get("AssociatePublicIpAddress")
    return InterfaceRequest(
        card=int(item.get("NetworkCardIndex") or 0),
        device=int(item["DeviceIndex"]),
        type=kind,
        subnet_id=item.get("SubnetId"),
        groups=tuple(item.get("Groups") or ()),
        private_ip=item.get("PrivateIpAddress") or primary,
        public_ip=None if public is None else bool(public),
        # An interface of a launch is deleted with its instance unless the request says otherwise.
        delete_on_termination=item.get("DeleteOnTermination") is not False,
        description=item.get("Description") or "",
    )


def check(
    interfaces: Sequence[InterfaceRequest], instance_type: str, network: Mapping[str, Any]
) -> None:
    """Raise Refusal if the layout does not fit the type's `NetworkInfo` (DescribeInstanceTypes)."""
    places = [(i.card, i.device) for i in interfaces]
    if (0, 0) not in places:
        raise bad_combination(
            "The primary network interface must have network card index 0 and device index 0."
        )
    if len(set(places)) < len(places):
        raise bad_value("Each network interface must have a unique network card and device index.")
    primary = next(i for i in interfaces if (i.card, i.device) == (0, 0))
    if primary.type == "efa-only":
        raise bad_combination("The primary network interface cannot be of type efa-only.")
    if len(interfaces) > 1 and any(i.public_ip for i in interfaces):
        raise bad_combination(MULTIPLE_INTERFACES)
    for interface in interfaces:
        if not interface.takes_ip and (interface.private_ip or interface.public_ip):
            raise bad_combination("An efa-only network interface cannot have an IP address.")
    _check_cards(interfaces, instance_type, network)


def _check_cards(
    interfaces: Sequence[InterfaceRequest], instance_type: str, network: Mapping[str, Any]
) -> None:
    cards = {card["NetworkCardIndex"]: card for card in network["NetworkCards"]}
    used: dict[int, list[InterfaceRequest]] = {}
    for interface in interfaces:
        if interface.card not in cards:
            raise bad_value(
                f"Network card index {interface.card} is invalid:"
                f" {instance_type} has network cards 0 to {max(cards)}."
            )
        used.setdefault(interface.card, []).append(interface)
    for index, on_card in used.items():
        card = cards[index]
        limit = card["MaximumNetworkInterfaces"]
        if len(on_card) > limit:
            raise Refusal(
                "AttachmentLimitExceeded",
                f"Interface count {len(on_card)} exceeds the limit for {instance_type}"
                f" on network card {index} ({limit}).",
            )
        offered = card.get("InterfaceTypes") or ["interface"]
        for interface in on_card:
            if interface.type not in offered:
                raise bad_combination(
                    f"Network card {index} of {instance_type} does not support"
                    f" interface type {interface.type}."
                )
        if sum(i.is_efa for i in on_card) > 1:
            raise bad_combination(f"Only one EFA is allowed per network card (card {index}).")
    efas = sum(i.is_efa for i in interfaces)
    most = (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0)
    if efas > most:
        raise Refusal(
            "AttachmentLimitExceeded",
            f"EFA count {efas} exceeds the limit for {instance_type} ({most}).",
        )


class Attachment(MotoAttachment):  # type: ignore[misc]  # moto is untyped here
    """An attachment that has its network card's index."""

    def __init__(self, interface: "NetworkInterface") -> None:
        super().__init__(interface)
        self.network_card_index = interface.network_card_index


class NetworkInterface(MotoInterface):  # type: ignore[misc]  # moto is untyped here
    """An interface that keeps its type and card. moto serializes it by its class name."""

    network_card_index = 0
    public_ip: str | None

    @property
    def attachment(self) -> Attachment | None:
        """The attachment to an instance; None if it is not attached."""
        return Attachment(self) if self.attachment_id else None

    @property
    def group_set(self) -> list[Any]:
        """The interface's security groups, without those of the instance's other interfaces."""
        return list(self._group_set)

    @property
    def association(self) -> dict[str, Any] | None:
        """The public address, if any; an automatic one belongs to Amazon, not to the account."""
        if not self.public_ip:
            return None
        association: dict[str, Any] = super().association
        if "allocationId" not in association:
            association["ipOwnerId"] = "amazon"
        return association

    def drop_addresses(self) -> None:
        """Remove all addresses: an efa-only interface has none."""
        self.private_ip_address = None
        self.private_ip_addresses: list[dict[str, Any]] = []
        self.private_dns_name = None

    def check_auto_public_ip(self) -> None:
        """Assign an automatic public address from the lab's range, if one is due."""
        if self.public_ip_auto_assign and not self.public_ip:
            self.public_ip = self.ec2_backend.lab.addresses.take()

    def stop(self) -> None:
        """Release the automatic public address, if there is one."""
        if self.public_ip_auto_assign and self.public_ip:
            self.ec2_backend.lab.addresses.give_back(self.public_ip)
            self.public_ip = None
