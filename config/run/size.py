"""Numbers of bytes as people write them: 8, 64K, 1M, 8G."""

from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from config.models import number_text

SIZE = r"^[1-9][0-9]{0,14}[KMG]?$"
_FACTORS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def byte_count(text: str) -> int:
    """Return bytes as nccl-tests does: K, M, G are powers of 1024 (parsesize in its common.cu)."""
    return int(text.rstrip("KMG")) * _FACTORS.get(text[-1], 1)


Size = Annotated[
    str,
    Field(pattern=SIZE),
    BeforeValidator(number_text),
    WithJsonSchema({"type": ["string", "integer"], "minimum": 1, "pattern": SIZE}),
]
