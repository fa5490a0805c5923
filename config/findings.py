"""What is wrong with a value, before anyone knows on which line it stands."""

from dataclasses import dataclass

from pydantic_core import PydanticCustomError

Path = tuple[str | int, ...]
"""Keys and indexes from the top of a file to a value."""

REFUSED = "gpuctl"
"""The type of the pydantic errors that carry faults of ours."""


@dataclass(frozen=True)
class Fault:
    """One complaint about the value at `at`, or about its key where `on_key`."""

    code: str
    message: str
    hint: str
    at: Path = ()
    on_key: bool = False


def refusal(*faults: Fault) -> PydanticCustomError:
    """The error that a validator raises; `at` of each fault is relative to the validated value."""
    text = "; ".join(f"{fault.message}; {fault.hint}" for fault in faults)
    return PydanticCustomError(REFUSED, "{text}", {"text": text, "faults": faults})


def spelled(path: Path) -> str:
    """`network.cidr`, `commands[0]`: a path as people write it."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")
