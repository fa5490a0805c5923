"""The generated part of docs/look-up/dstack-keys.md."""

from formats.dstack.dstack_keys import ANSWERS, KEYS, TYPES


def dstack_reference() -> str:
    """Return what each answer to a key of dstack's task means, every key, and the other types."""
    answers = [f"| *{answer}* | {meaning} |" for answer, meaning in ANSWERS.items()]
    keys = [f"| `{key.name}` | *{key.answer}* | {key.text} |" for key in KEYS]
    types = [f"| `{name}` | {instead} |" for name, instead in TYPES.items()]
    return "\n".join(
        [
            "## Every key",
            "",
            "| gpuctl | |",
            "| --- | --- |",
            *answers,
            "",
            "| key | gpuctl | how, or why not |",
            "| --- | --- | --- |",
            *keys,
            "",
            "## Other types",
            "",
            "| `type` | instead |",
            "| --- | --- |",
            *types,
            "",
        ]
    )
