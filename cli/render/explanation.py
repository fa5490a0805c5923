"""An explanation as lines of a terminal."""

import shutil
import textwrap
from collections.abc import Iterator

from config.explanation import Explanation, Field


def lines(explanation: Explanation) -> Iterator[str]:
    """Yield the meaning, then the form, the reason and the remedy."""
    yield f"{explanation.name}: {explanation.subject}"
    yield ""
    yield from _wrapped(explanation.meaning, "  ")
    field = explanation.field
    facts = {
        "Value": field.kind if field else "",
        "Default": field.default if field else "",
        "Required": "yes" if field and field.is_required else "",
        "Types": ", ".join(field.types) if field else "",
        "Example": explanation.example,
        "Reason": explanation.reason,
        "Reaction": explanation.reaction,
        "What to do": explanation.remedy,
    }
    for title, text in facts.items():
        if text:
            yield from ("", f"{title}:")
            yield from _wrapped(text, "  ")
    if explanation.keys:
        yield from ("", "Keys:")
        for key in explanation.keys:
            yield from _key(key)
    yield from ("", f"Documentation: {explanation.page}")


def _key(key: Field) -> Iterator[str]:
    presence = f"by default {key.default}" if key.default else ""
    if key.is_required:
        presence = "required"
    notes = (key.kind, presence, *key.types)
    yield f"  {key.name} ({', '.join(note for note in notes if note)})"
    yield from _wrapped(key.description, "      ")


def _wrapped(text: str, indent: str) -> list[str]:
    width = min(shutil.get_terminal_size().columns, 100)
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
