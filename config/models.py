"""The two bases of pydantic models: parts of files that people write, and stored values."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A part of a file that people write: an unknown key is a mistake, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Value(BaseModel):
    """A value that gpuctl stores as JSON: unknown keys are ignored, values never change."""

    model_config = ConfigDict(frozen=True, extra="ignore")
