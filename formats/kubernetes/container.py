"""A container of a manifest: its command, its image and its environment.

Kubernetes replaces `$(NAME)` in commands and values before any shell sees it (Kubernetes API
reference, Container v1 core, 2026-11-20): the name of an unknown variable stays as it is written,
and `$$` is one `$`.
"""

import re
import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from config.command_rules import entry_mistakes
from config.mistakes import Path, path_text
from config.run.container_fields import (
    IMAGE_START,
    OTHERS_IMAGES,
    TAKE_CUDA,
    WHY_NO_OTHERS,
    image_mistakes,
)
from config.yaml.hints import shorten
from formats.converted import Placed
from formats.foreign_file import ForeignFile
from formats.kubernetes.placeholders import is_own_secret

# What other vendors' device plugins offer, as their documentation names it (2026-11-23).
_OTHERS_RESOURCES = re.compile(
    r"(amd\.com/gpu|google\.com/tpu|habana\.ai/|aws\.amazon\.com/neuron).*"
)
_ENTRYPOINT = r'eval "$GPUCTL_IMAGE_ENTRYPOINT \"\$@\""'
_LONGEST_VALUE = 100_000  # Linux starts no program with a longer one (execve(2), 128 KiB)
_SHELL = re.compile(r"(?:.*/)?(?:ba|da)?sh")
_READS_NEXT = re.compile(r"-[a-z]*c")
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


@dataclass(frozen=True)
class Container:
    """The values of a container. `env` has text, or a run file's `{secret: NAME}`.

    `command` and `args` are as they are written; `at` is its path. Without a command the image's
    entrypoint runs. `init` are containers that run before it, in order, and `name` is that of one
    of them.
    """

    at: Path
    image: Placed | None
    env: dict[str, Placed]
    command: tuple[str, ...]
    args: tuple[str, ...]
    folder: str
    init: tuple["Container", ...] = ()
    name: str = ""

    def commands(self, known: Collection[str]) -> list[str]:
        """Return the shell commands that do what the container does, and `init` before.

        `known` are variables in addition to those of the container.
        """
        return [*self.init_commands(known), *self._own_commands(known)]

    def init_commands(self, known: Collection[str] = ()) -> list[str]:
        """Return a shell command for each container of `init`; it fails as the container does."""
        return [init.as_command(known) for init in self.init]

    def as_command(self, known: Collection[str]) -> str:
        """Return its commands in a subshell, so that folder and variables are its own."""
        values = {
            name: variable.value
            for name, variable in self.env.items()
            if isinstance(variable.value, str)
        }
        lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
        *before, last = self._own_commands(known)
        lines += [*(f"{line} || exit" for line in before), last]
        said = shlex.quote(f"gpuctl: init container {self.name} ended with exit code")
        failed = f'{{ set -- "$?"; echo {said} "$1" >&2; exit "$1"; }}'
        return "\n".join(("(", *lines, f") || {failed}"))

    def _own_commands(self, known: Collection[str]) -> list[str]:
        names = {*self.env, *known}
        line = " ".join(_bash_word(word, names) for word in self.words)
        if not self.command:
            # An image's entrypoint gets the arguments, or else the image's own command.
            line = f"set -- {line}\n{_ENTRYPOINT}" if line else IMAGE_START
        return [f"cd -- {shlex.quote(self.folder)}", line] if self.folder else [line]

    @property
    def words(self) -> tuple[str, ...]:
        """Return command and arguments."""
        return self.command + self.args

    @property
    def only_waits(self) -> bool:
        """Return whether it runs nothing, sshd or sleep, because mpirun starts the ranks."""
        return not self.words or self.mentions("sshd") or self.mentions("sleep")

    def mentions(self, text: str) -> bool:
        """Return whether the text is in a word or in the name of a variable."""
        return any(text in word for word in (*self.words, *self.env))


def container_at(manifest: ForeignFile, at: Path) -> Container:
    """Return the container at a path."""
    image = manifest.text((*at, "image"))
    if image:
        manifest.mistakes += image_mistakes(image, (*at, "image"))
        _require_nvidia_image(manifest, image, (*at, "image"))
    for key in ("resources", "resourcesPerNode"):
        _require_nvidia_resources(manifest, (*at, key))
    command, arguments = (manifest.texts((*at, key)) for key in ("command", "args"))
    _check_script(manifest, at, len(command), command + arguments)
    return Container(
        at=at,
        image=Placed(image, (*at, "image")) if image else None,
        env=_environment(manifest, (*at, "env")),
        command=command,
        args=arguments,
        folder=manifest.text((*at, "workingDir")),
    )


def _check_script(manifest: ForeignFile, at: Path, commands: int, words: tuple[str, ...]) -> None:
    """Report a script that bash cannot read, of a container that begins a shell with it."""
    options = [index for index, word in enumerate(words) if _READS_NEXT.fullmatch(word)]
    if words and _SHELL.fullmatch(words[0]) and options and words[options[0] + 1 :]:
        index = options[0] + 1
        place = ("command", index) if index < commands else ("args", index - commands)
        manifest.mistakes += entry_mistakes(words[index], (*at, *place))


def _require_nvidia_image(manifest: ForeignFile, image: str, at: Path) -> None:
    if OTHERS_IMAGES.search(image):
        message = f"'{path_text(at)}' is {shorten(image)}, which is {WHY_NO_OTHERS}"
        manifest.complain("E225", message, TAKE_CUDA, at)


def _require_nvidia_resources(manifest: ForeignFile, at: Path) -> None:
    """Refuse a container that asks for accelerators of another vendor."""
    for kind in ("limits", "requests"):
        for name in manifest.mapping((*at, kind)):
            if _OTHERS_RESOURCES.fullmatch(name):
                place = (*at, kind, name)
                message = f"'{path_text(place)}' is not what AWS's NVIDIA nodes have"
                manifest.complain(
                    "E225",
                    message,
                    "ask for nvidia.com/gpu, with an image for CUDA",
                    place,
                    on_key=True,
                )
                return


def require_command(manifest: ForeignFile, container: Container) -> None:
    """Report a container that starts nothing: it has neither a command nor an image."""
    if not container.words and container.image is None:
        message = f"'{path_text((*container.at, 'command'))}' is missing, and there is no image"
        manifest.complain("E102", message, "add the command", container.at)


def _environment(manifest: ForeignFile, at: Path) -> dict[str, Placed]:
    """Return variables by name; a later one replaces an earlier one, and may refer to it."""
    variables: dict[str, Placed] = {}
    for index in range(len(manifest.entries(at))):
        entry = (*at, index)
        manifest.warn_unknown(entry, {"name", "value", "valueFrom"})
        name = manifest.text((*entry, "name"))
        if not name:
            message = f"'{path_text((*entry, 'name'))}' is missing"
            manifest.complain("E102", message, "name the variable", entry)
        elif is_own_secret(name, manifest.get((*entry, "value"))):
            variables[name] = Placed({"secret": name}, entry)
        elif manifest.get((*entry, "valueFrom")) is None:
            variables[name] = Placed(_value(manifest, entry, variables), entry)
        elif manifest.get((*entry, "valueFrom", "secretKeyRef")) is None:
            hint = "write its value, or take a secret (secretKeyRef)"
            manifest.refuse_part((*entry, "valueFrom"), hint)
        else:
            variables[name] = Placed({"secret": name}, entry)
    return variables


def _value(manifest: ForeignFile, entry: Path, before: dict[str, Placed]) -> str:
    """Return the entry's value, in which earlier variables are replaced by their values."""

    def earlier(name: str) -> str:
        value: Any = before[name].value
        if not isinstance(value, str):
            at = (*entry, "value")
            message = f"'{path_text(at)}' has the secret {name} in it"
            hint = "put them together in the command: it has both"
            manifest.complain("E225", message, hint, at)
            return ""
        return value

    value = "".join(_parts(manifest.text((*entry, "value")), before, str, earlier))
    if len(value) > _LONGEST_VALUE:
        message = f"'{path_text((*entry, 'value'))}' has {len(value)} characters with its variables"
        manifest.complain("E202", message, f"use at most {_LONGEST_VALUE}", (*entry, "value"))
        return ""
    return value


def _bash_word(text: str, names: Collection[str]) -> str:
    """Return the word as bash text that bash reads unchanged, except for variables."""
    return "".join(_parts(text, names, shlex.quote, '"${}"'.format)) or "''"


def _parts(
    text: str, names: Collection[str], plain: Callable[[str], str], variable: Callable[[str], str]
) -> list[str]:
    """Return plain text and variables in turn, each through its function, without empty text."""
    parts, literal, end = [], "", 0
    for match in _REFERENCE.finditer(text):
        literal += text[end : match.start()]
        end = match.end()
        if match[1] in names:
            parts += [plain(literal)] if literal else []
            parts.append(variable(match[1]))
            literal = ""
        else:
            literal += "$" if match[0] == "$$" else match[0]
    literal += text[end:]
    return [*parts, plain(literal)] if literal else parts
