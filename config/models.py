"""The two bases of pydantic models: parts of files that people write, and stored values.

Also what several fields share. pydantic makes a model's validator at its first use: a command
imports many models and uses few. Threads may share them
(https://github.com/pydantic/pydantic/pull/13438, in 2.14).
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Discriminator


class Model(BaseModel):
    """A part of a file that people write: an unknown key is a mistake, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Value(BaseModel):
    """A value that gpuctl stores as JSON: unknown keys are ignored, values never change.

    It reads as it was written, also where a job printed `inf` as a figure.
    """

    model_config = ConfigDict(
        frozen=True, extra="ignore", defer_build=True, ser_json_inf_nan="constants"
    )


SCALAR, MAPPING = "[scalar]", "[mapping]"
"""The tags of a field that is written as one value or as a mapping."""


def _shape(value: Any) -> str:
    return MAPPING if isinstance(value, (dict, BaseModel)) else SCALAR


BY_SHAPE = Discriminator(_shape)
"""It chooses between SCALAR and MAPPING: a wrong value gives one diagnostic and not two."""


def number_text(value: Any) -> Any:
    """Return a plain number as text: it may be written without quotes."""
    return str(value) if type(value) is int else value
