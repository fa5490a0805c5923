import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.duration import format_duration, parse_duration


@given(st.integers(1, 999_999), st.sampled_from("smhd"))
def test_round_trip(number: int, unit: str) -> None:
    seconds = parse_duration(f"{number}{unit}")
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "90s"), (1800, "30m"), (28800, "8h"), (172800, "2d")]
)
def test_the_largest_unit_that_divides(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    "text", ["", "8", "h", "0h", "-1h", "1.5h", "8 h", "8H", "8h30m", "1000000s", "٣h", 8]
)
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="must be a whole number"):
        parse_duration(text)
