"""The page about health says what the rules do."""

from provision.health.reference import MARKER, PAGE, replace_reference


def test_the_table_of_rules_is_generated() -> None:
    text = PAGE.read_text()
    assert MARKER in text
    assert text == replace_reference(text), "run `make docs`"
