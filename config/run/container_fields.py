"""Fields of a run's container: its registry's account, its volumes, its ports."""

from typing import Annotated

from pydantic import BeforeValidator, Field, Tag, WithJsonSchema

from config.bounds import PORT
from config.models import BY_SHAPE, MAPPING, SCALAR, Model, number_text
from config.run.env import EnvText, Secret

MOUNT = r"^/[^:\x00]*:/[^:\x00]*$"
CONTAINER_FORMS = {
    MOUNT: "a folder of the node and its place in the container: /data:/data",
    PORT: "a port of node 0, or one here and one there: 8000, 80:8000, *:8000 (any free one)",
}
"""The patterns of this module in words."""

Volume = Annotated[str, Field(pattern=MOUNT)]
Port = Annotated[
    str,
    Field(pattern=PORT),
    BeforeValidator(number_text),
    WithJsonSchema({"type": ["string", "integer"], "minimum": 1, "pattern": PORT}),
]


Password = Annotated[
    Annotated[EnvText, Field(min_length=1), Tag(SCALAR)] | Annotated[Secret, Tag(MAPPING)],
    BY_SHAPE,
    WithJsonSchema(Secret.model_json_schema()),
]


class RegistryAuth(Model):
    """The account that pulls the image from a private registry."""

    username: str = Field(min_length=1, description="The user.")
    password: Password = Field(description="The password or token, as a secret: `{secret: NAME}`.")
