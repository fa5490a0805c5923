"""The network interfaces with which a node is launched.

EFA reaches its full bandwidth only if every network card that supports EFA has an EFA interface,
and the cards differ per instance type. The layout is derived from EC2's description of the type
and never from a table, so that new types work without a change of gpuctl.
"""

from typing import Literal

from config.cluster.resolved import InstanceType, Interface, NetworkCard
from config.errors import InputError

_EFA_INTERFACES = frozenset({"efa", "efa-only"})


def interfaces(
    instance: InstanceType,
    efa: Literal["auto", "required", "off"],
    use: Literal["save-addresses", "max-bandwidth"] = "save-addresses",
) -> tuple[Interface, ...]:
    """Return one node's launch layout, the primary interface first, then by card.

    Card 0 has an ordinary interface at device 0. Every card that supports EFA has one `efa-only`
    interface: on card 0 at device 1, elsewhere at device 0; never more than EC2's
    MaximumEfaInterfaces. With `save-addresses` no other has an IP address; with `max-bandwidth`
    further cards have an ordinary interface at device 1 (see `_ip_cards`). Raises InputError
    if EFA is required and the type has none. Source: AWS, "Maximize network bandwidth on
    Amazon EC2 instances with multiple network cards" (EC2 User Guide, efa-acc-inst-types,
    2026-11-20).
    """
    if efa == "required" and instance.max_efa == 0:
        raise InputError(
            f"network.efa is required, but {instance.name} has no EFA",
            "choose an instance type with EFA, or set network.efa to auto",
        )
    layout = [Interface(card=0, device=0, type="interface")]
    if efa != "off":
        layout += [
            Interface(card=card, device=1 if card == 0 else 0, type="efa-only")
            for card in _efa_cards(instance)[: instance.max_efa]
        ]
    if use == "max-bandwidth":
        layout += [Interface(card=card, device=1, type="interface") for card in _ip_cards(instance)]
    return tuple(sorted(layout, key=lambda interface: (interface.card, interface.device)))


_SHARING = 4


def _ip_cards(instance: InstanceType) -> list[int]:
    """Return the cards other than card 0 on which an ordinary interface adds IP bandwidth.

    These are all cards that support an ordinary interface in addition to EFA, or every fourth of
    them if no card supports more than two interfaces. AWS documents this per type (the page named
    above): P5 and P5e, whose cards support two, have additional IP bandwidth on cards 4, 8, … 28;
    P6-B200 and P6-B300, whose cards support four, on every card. For unknown types gpuctl uses
    every fourth card if a card supports at most two interfaces, otherwise every card.
    """
    step = _SHARING if all(card.max_interfaces <= 2 for card in instance.cards) else 1
    return [
        card.index
        for card in sorted(instance.cards, key=lambda card: card.index)
        if card.index > 0
        and card.index % step == 0
        and card.max_interfaces > 1
        and (not card.interface_types or "interface" in card.interface_types)
    ]


def _efa_cards(instance: InstanceType) -> list[int]:
    """Return the indexes of the cards that support EFA, ascending.

    If EC2 gives no InterfaceTypes for any card of the type, all cards are returned, and the caller
    uses the first `max_efa` (every such type has EFA from card 0 on).
    """
    cards = sorted(instance.cards, key=lambda card: card.index)
    if any(card.interface_types for card in cards):
        return [card.index for card in cards if _supports_efa(card)]
    return [card.index for card in cards]


def _supports_efa(card: NetworkCard) -> bool:
    return not _EFA_INTERFACES.isdisjoint(card.interface_types)
