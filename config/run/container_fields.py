"""Fields of a run's container: its registry's account, its volumes, its ports."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from config.bounds import PORT
from config.models import Model, number_text
from config.run.env import EnvText, Secret

MOUNT = r"^/[^:\x00]*:/[^:\x00]*$"
CONTAINER_FORMS = {
    MOUNT: "a folder of the node and its place in the container: /data:/data",
    PORT: "a port of node 0, or one here and one there: 8000, 80:8000, *:8000 (any free one)",
}
"""The patterns of this module in words."""

WRITTEN_TAG, NAMED_TAG = "[written]", "[named]"


Volume = Annotated[str, Field(pattern=MOUNT)]
Port = Annotated[
    str,
    Field(pattern=PORT),
    BeforeValidator(number_text),
    WithJsonSchema({"type": ["string", "integer"], "minimum": 1, "pattern": PORT}),
]


def _kind_of_password(value: Any) -> str:
    return WRITTEN_TAG if isinstance(value, str) else NAMED_TAG


Password = Annotated[
    Annotated[EnvText, Field(min_length=1), Tag(WRITTEN_TAG)] | Annotated[Secret, Tag(NAMED_TAG)],
    Discriminator(_kind_of_password),
    WithJsonSchema(Secret.model_json_schema()),
]


class RegistryAuth(Model):
    """The account that pulls the image from a private registry."""

    username: str = Field(min_length=1, description="The user.")
    password: Password = Field(description="The password or token, as a secret: `{secret: NAME}`.")
