"""Bytes in the unit that a person reads."""

import pytest

from config.quantities import size

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 KiB"),
        (1, "1 KiB"),
        (KIB + 1, "2 KiB"),
        (MIB - KIB, "1023 KiB"),
        (MIB, "1.0 MiB"),
        (MIB + MIB // 2, "1.5 MiB"),
        (1000 * MIB, "1000.0 MiB"),
        (GIB, "1.0 GiB"),
        (10 * GIB, "10.0 GiB"),
    ],
)
def test_bytes_are_in_the_largest_unit_of_which_there_is_one(amount: int, text: str) -> None:
    assert size(amount) == text
