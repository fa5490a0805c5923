"""Which network interfaces a node is launched with.

EFA gives its bandwidth only when every network card that can carry EFA has an EFA interface, and
the cards differ per instance type. The layout is derived from what EC2 says of the type and
never from a table, so that a type of next year works on its first day.
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
    """One node's launch layout, primary first, then by card.

    Card 0 has an ordinary interface at device 0. Every card that can carry EFA has one `efa-only`
    interface: on card 0 at device 1, elsewhere at device 0; never more than EC2's
    MaximumEfaInterfaces. With `save-addresses` no other has an IP address; with `max-bandwidth`
    further cards have an ordinary interface at device 1 (see `_ip_cards`). Raises InputError
    where EFA is required and the type has none. Source: AWS, "Maximize network bandwidth on
    Amazon EC2 instances with multiple network cards" (EC2 User Guide, efa-acc-inst-types,
    2026-11-20).
    """
    if efa == "required" and instance.max_efa == 0:
        raise InputError(
            f"network.efa is required, but {instance.name} has no EFA",
            "choose an instance type with EFA, or set network.efa to auto",
        )
    found = [Interface(card=0, device=0, type="interface")]
    if efa != "off":
        found += [
            Interface(card=card, device=1 if card == 0 else 0, type="efa-only")
            for card in _efa_cards(instance)[: instance.max_efa]
        ]
    if use == "max-bandwidth":
        found += [Interface(card=card, device=1, type="interface") for card in _ip_cards(instance)]
    return tuple(sorted(found, key=lambda interface: (interface.card, interface.device)))


_SHARING = 4


def _ip_cards(instance: InstanceType) -> list[int]:
    """Indexes of the cards beside card 0 whose own IP bandwidth an ordinary interface opens.

    Every card that takes one beside its EFA; where cards take no more than two interfaces, every
    fourth. AWS gives this per type: P5 and P5e, whose cards take two, have IP bandwidth of their
    own on cards 4, 8, … 28; P6-B200 and P6-B300, whose cards take four, on every card (the page
    named above). What it does not name is treated as what it is like.
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
    """Indexes of the cards that can carry EFA, ascending.

    Where EC2 gives no InterfaceTypes for any card of the type, the first `max_efa` cards are meant
    (every such type has EFA from card 0 on).
    """
    cards = sorted(instance.cards, key=lambda card: card.index)
    if any(card.interface_types for card in cards):
        return [card.index for card in cards if _carries_efa(card)]
    return [card.index for card in cards]


def _carries_efa(card: NetworkCard) -> bool:
    return not _EFA_INTERFACES.isdisjoint(card.interface_types)
