"""Fields of a run's container: its image, its registry's account, its volumes, its ports.

The form of an image's name is that of https://pkg.go.dev/github.com/distribution/reference
(2026-11-23). An image's name becomes an argument of docker or podman, so nothing else may pass.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, Tag, WithJsonSchema

from config.bounds import PORT
from config.mistakes import Mistake, Path, path_text
from config.models import BY_SHAPE, MAPPING, SCALAR, Model, number_text
from config.run.env import EnvText, Secret
from config.yaml.hints import quote

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


_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_PART = "[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*"
IMAGE_REFERENCE = (
    rf"^({_LABEL}([.]{_LABEL})*(:[0-9]{{1,5}})?/)?{_PART}(/{_PART})*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z][A-Za-z0-9+._-]{0,30}:[0-9a-fA-F]{32,128})?$"
)
IMAGE_FORM = "an image's name, such as nvcr.io/nvidia/pytorch:25.09-py3, in lower-case letters"

ImageName = Annotated[str, Field(pattern=IMAGE_REFERENCE, max_length=500)]

IMAGE_START = (
    'test -n "$GPUCTL_IMAGE_ENTRYPOINT$GPUCTL_IMAGE_COMMAND" ||'
    ' { echo "gpuctl: there is no image, or it has no command" >&2; exit 127; }\n'
    'eval "exec $GPUCTL_IMAGE_ENTRYPOINT $GPUCTL_IMAGE_COMMAND"'
)
"""Starts what the image would start; the worker sets the variables (engine/agent), which are empty
without an image (`--no-image`)."""

OTHERS_IMAGES = re.compile(
    r"(^|[/:._-])(rocm|tpu|habana|gaudi|neuronx?)([/:._-]|[0-9]|$)", re.IGNORECASE
)
"""Matches in the name of an image that is made for accelerators other than NVIDIA's."""
WHY_NO_OTHERS = "made for accelerators that AWS's NVIDIA nodes do not have"
TAKE_CUDA = "take an image with CUDA"

_PLACEHOLDER = re.compile(
    r"<[^<>]*>|\{\{.*?\}\}|\b(your|my)[-_](account|registry|repo|image|org|project|user)\w*"
    r"|\b(replace|change)[-_]?me\b|\bx{4,}\b",
    re.IGNORECASE,
)
_ECR = re.compile(r"([^/]*)\.dkr\.ecr(-fips)?\.([^/.]*)\.amazonaws\.com")


def placeholder_mistakes(image: Any, at: Path) -> Iterator[Mistake]:
    """Yield the mistake of an image that still has a placeholder in its name."""
    if isinstance(image, str) and (placeholder := _placeholder(image)):
        actual = f"'{path_text(at)}' is {quote(image)}"
        message = f"{actual}, in which {quote(placeholder)} is not filled in"
        yield Mistake("E226", message, "write your own value there", at)


def image_mistakes(image: str, at: Path) -> Iterator[Mistake]:
    """Yield the mistake of a text that is no image's name."""
    mistakes = list(placeholder_mistakes(image, at))
    if not mistakes and not re.fullmatch(IMAGE_REFERENCE.strip("^$"), image):
        message = f"'{path_text(at)}' is {quote(image)}"
        mistakes.append(Mistake("E203", message, f"write {IMAGE_FORM}", at))
    yield from mistakes


def _placeholder(image: str) -> str:
    """Return the part of the name that nobody has filled in; empty if there is none."""
    if match := _PLACEHOLDER.search(image):
        return match[0]
    if match := _ECR.match(image):
        # https://docs.aws.amazon.com/AmazonECR/latest/userguide/Registries.html, 2026-11-23.
        account, region = match[1], match[3]
        if not re.fullmatch("[0-9]{12}", account):
            return account
        if not re.fullmatch("[a-z]{2}(-[a-z]+)+-[0-9]+", region):
            return region
    return ""
