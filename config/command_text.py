"""Commands that gpuctl shows for people to paste into a shell."""

import shlex


def command_text(command: str, *values: object) -> str:
    """Return the command between backticks, with a value in place of each `{}`.

    The values may be a stranger's: tags of a cloud, names of files, what a node reports. Each is
    quoted for a shell, and none is read as an option.
    """
    first, *others = command.split("{}")
    parts = (f"{_quoted(value)}{part}" for value, part in zip(values, others, strict=True))
    return f"`{first}{''.join(parts)}`"


def _quoted(value: object) -> str:
    text = str(value)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
