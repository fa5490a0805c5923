import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.cluster.resolved import InstanceType, Interface, NetworkCard
from config.errors import InputError
from infra.program.interface_layout import interfaces
from tests.infra.region import instance_type

PRIMARY = (0, 0, "interface")


def layout(name: str) -> list[tuple[int, int, str]]:
    return [(i.card, i.device, i.type) for i in interfaces(instance_type(name), "auto")]


def test_p4d_has_efa_on_four_cards() -> None:
    assert layout("p4d.24xlarge") == [
        PRIMARY,
        (0, 1, "efa-only"),
        (1, 0, "efa-only"),
        (2, 0, "efa-only"),
        (3, 0, "efa-only"),
    ]


def test_p6_b300_has_efa_on_every_card_but_the_first() -> None:
    assert layout("p6-b300.48xlarge") == [
        PRIMARY,
        *((card, 0, "efa-only") for card in range(1, 17)),
    ]


@pytest.mark.parametrize(
    ("name", "efa"),
    [
        ("p5.48xlarge", 32),
        ("p5en.48xlarge", 16),
        ("p6-b200.48xlarge", 8),
        ("g6e.48xlarge", 4),
        ("g5.8xlarge", 1),
    ],
)
def test_types_with_efa_on_card_0_use_every_card(name: str, efa: int) -> None:
    assert layout(name) == [
        PRIMARY,
        (0, 1, "efa-only"),
        *((card, 0, "efa-only") for card in range(1, efa)),
    ]


def test_a_type_without_efa_has_one_interface() -> None:
    assert layout("t3.small") == [PRIMARY]


def test_efa_off_leaves_the_primary_alone() -> None:
    assert interfaces(instance_type("p5.48xlarge"), "off") == (
        Interface(card=0, device=0, type="interface"),
    )


def test_efa_required_refuses_a_type_without() -> None:
    with pytest.raises(InputError) as refused:
        interfaces(instance_type("t3.small"), "required")
    assert str(refused.value) == (
        "network.efa is required, but t3.small has no EFA;"
        " choose an instance type with EFA, or set network.efa to auto"
    )


def test_without_interface_types_the_first_cards_are_meant() -> None:
    kind = instance_type("p4d.24xlarge")
    cards = tuple(card.model_copy(update={"interface_types": ()}) for card in kind.cards)
    bare = kind.model_copy(update={"cards": cards, "max_efa": 2})
    assert [(i.card, i.device) for i in interfaces(bare, "auto")] == [(0, 0), (0, 1), (1, 0)]


@given(
    cards=st.lists(st.sampled_from([(), ("interface",), ("interface", "efa-only")]), max_size=20),
    max_efa=st.integers(0, 20),
)
def test_any_type_gets_a_layout_that_ec2_takes(cards: list[tuple[str, ...]], max_efa: int) -> None:
    kind = InstanceType(
        name="x1.large",
        vcpus=1,
        memory_mib=1,
        gpus=0,
        gpu_model="",
        architecture="x86_64",
        max_efa=max_efa,
        cards=tuple(
            NetworkCard(index=index, max_interfaces=2, interface_types=types)
            for index, types in enumerate(cards)
        ),
    )
    first, *rest = interfaces(kind, "auto")
    assert (first.card, first.device, first.type) == PRIMARY
    assert len(rest) <= max_efa
    assert len({i.card for i in rest}) == len(rest), "one EFA a card"
    assert len({(i.card, i.device) for i in (first, *rest)}) == len(rest) + 1
