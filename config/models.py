"""The two bases of our pydantic models: pieces of files that people write, and stored values."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A piece of a file that people write: unknown keys are mistakes, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Value(BaseModel):
    """A value that gpuctl made and stores as JSON: read tolerantly, never changed."""

    model_config = ConfigDict(frozen=True, extra="ignore")
