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

from config.manifests.converted import Placed
from config.manifests.manifest import Manifest
from config.manifests.placeholders import is_own_secret
from config.mistakes import Path, path_text
from config.run.image_reference import (
    IMAGE_START,
    OTHERS_IMAGES,
    TAKE_CUDA,
    WHY_NO_OTHERS,
    image_mistakes,
)
from config.yaml.hints import shorten

_KNOWN = {
    *("name", "image", "command", "args", "env", "workingDir"),
    # Refused in this module, or meaningful to Kubernetes alone.
    *("envFrom", "imagePullPolicy", "ports", "stdin", "tty"),
    *("livenessProbe", "readinessProbe", "startupProbe"),
    *("terminationMessagePath", "terminationMessagePolicy"),
}
_POD_KNOWN = {
    *("containers", "initContainers", "restartPolicy", "terminationGracePeriodSeconds"),
    *("hostNetwork", "hostIPC", "hostPID", "hostname", "subdomain", "dnsPolicy", "schedulerName"),
    *("automountServiceAccountToken", "enableServiceLinks"),
}
# What other vendors' device plugins offer, as their documentation names it (2026-11-23).
_OTHERS_RESOURCES = re.compile(
    r"(amd\.com/gpu|google\.com/tpu|habana\.ai/|aws\.amazon\.com/neuron).*"
)
_WAITING = {"nslookup", "getent", "nc", "ping", "sleep", "dig", "host", "ssh-keyscan"}
_HARMLESS = {"echo", "done", "fi", "true", "false", "test", "[", "exit", "set", "date"}
_KEYWORDS = re.compile(r"^\s*(?:(?:until|while|do|if|then|else|!|for\s.*)(?:\s+|$))*")
_ENTRYPOINT = r'eval "$GPUCTL_IMAGE_ENTRYPOINT \"\$@\""'
_LONGEST_VALUE = 100_000  # Linux starts no program with a longer one (execve(2), 128 KiB)
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


@dataclass(frozen=True)
class Container:
    """The values of a container. `env` has text, or a run file's `{secret: NAME}`.

    `command` and `args` are as they are written; `at` is its path. Without a command the image's
    entrypoint runs.
    """

    at: Path
    image: Placed | None
    env: dict[str, Placed]
    command: tuple[str, ...]
    args: tuple[str, ...]
    folder: str

    def commands(self, known: Collection[str]) -> list[str]:
        """Return the shell commands that do what the container does.

        `known` are variables in addition to those of the container.
        """
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


def container_of_pod(manifest: Manifest, template: Path) -> Container:
    """Return the only container of a pod's template; refuse others."""
    pod = (*template, "spec")
    manifest.warn_unknown(template, {"metadata", "spec"})
    manifest.warn_unknown(pod, _POD_KNOWN)
    _init_containers(manifest, (*pod, "initContainers"))
    at = (*pod, "containers")
    found = manifest.entries(at)
    if found[1:]:
        hint = "keep the one that does the work: a node runs one"
        _refuse(manifest, (*at, 1), hint, on_key=False)
    manifest.warn_unknown((*at, 0), _KNOWN)
    if manifest.get((*at, 0, "envFrom")):
        _refuse(manifest, (*at, 0, "envFrom"), "write its variables in 'env'")
    return container_at(manifest, (*at, 0))


def _init_containers(manifest: Manifest, at: Path) -> None:
    """Leave out containers that only wait, with a warning; refuse others."""
    places = [(*at, index) for index in range(len(manifest.entries(at)))]
    if not all(_only_waits_for_others(manifest, place) for place in places):
        _refuse(manifest, at, "do that in the job's command or in an image")
        return
    for place in places:
        manifest.warn_ignored(place, "a run starts when its nodes are ready and reach each other")


def _only_waits_for_others(manifest: Manifest, at: Path) -> bool:
    """Return whether the container does nothing but look for others, and sleep."""
    words = [*manifest.texts((*at, "command")), *manifest.texts((*at, "args"))]
    script = words[-1] if any(re.fullmatch(r"-\w*c", word) for word in words) else " ".join(words)
    calls = [_KEYWORDS.sub("", part).split()[:1] for part in re.split(r"[;&|\n]+", script)]
    programs = {call[0].rpartition("/")[2] for call in calls if call}
    return bool(programs & _WAITING) and programs <= _WAITING | _HARMLESS


def container_at(manifest: Manifest, at: Path) -> Container:
    """Return the container at a path."""
    image = manifest.text((*at, "image"))
    if image:
        manifest.mistakes += image_mistakes(image, (*at, "image"))
        _require_nvidia_image(manifest, image, (*at, "image"))
    for key in ("resources", "resourcesPerNode"):
        _require_nvidia_resources(manifest, (*at, key))
    command, arguments = (manifest.texts((*at, key)) for key in ("command", "args"))
    return Container(
        at=at,
        image=Placed(image, (*at, "image")) if image else None,
        env=_environment(manifest, (*at, "env")),
        command=command,
        args=arguments,
        folder=manifest.text((*at, "workingDir")),
    )


def _require_nvidia_image(manifest: Manifest, image: str, at: Path) -> None:
    if OTHERS_IMAGES.search(image):
        message = f"'{path_text(at)}' is {shorten(image)}, which is {WHY_NO_OTHERS}"
        manifest.complain("E225", message, TAKE_CUDA, at)


def _require_nvidia_resources(manifest: Manifest, at: Path) -> None:
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


def require_command(manifest: Manifest, container: Container) -> None:
    """Report a container that starts nothing: it has neither a command nor an image."""
    if not container.words and container.image is None:
        message = f"'{path_text((*container.at, 'command'))}' is missing, and there is no image"
        manifest.complain("E102", message, "add the command", container.at)


def _environment(manifest: Manifest, at: Path) -> dict[str, Placed]:
    """Return variables by name; a later one replaces an earlier one, and may refer to it."""
    found: dict[str, Placed] = {}
    for index in range(len(manifest.entries(at))):
        entry = (*at, index)
        manifest.warn_unknown(entry, {"name", "value", "valueFrom"})
        name = manifest.text((*entry, "name"))
        if not name:
            message = f"'{path_text((*entry, 'name'))}' is missing"
            manifest.complain("E102", message, "name the variable", entry)
        elif is_own_secret(name, manifest.get((*entry, "value"))):
            found[name] = Placed({"secret": name}, entry)
        elif manifest.get((*entry, "valueFrom")) is None:
            found[name] = Placed(_value(manifest, entry, found), entry)
        elif manifest.get((*entry, "valueFrom", "secretKeyRef")) is None:
            hint = "write its value, or take a secret (secretKeyRef)"
            _refuse(manifest, (*entry, "valueFrom"), hint)
        else:
            found[name] = Placed({"secret": name}, entry)
    return found


def _value(manifest: Manifest, entry: Path, before: dict[str, Placed]) -> str:
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
    found, literal, end = [], "", 0
    for match in _REFERENCE.finditer(text):
        literal += text[end : match.start()]
        end = match.end()
        if match[1] in names:
            found += [plain(literal)] if literal else []
            found.append(variable(match[1]))
            literal = ""
        else:
            literal += "$" if match[0] == "$$" else match[0]
    literal += text[end:]
    return [*found, plain(literal)] if literal else found


def _refuse(manifest: Manifest, at: Path, hint: str, *, on_key: bool = True) -> None:
    message = f"'{path_text(at)}' cannot be carried out: there is no Kubernetes here"
    manifest.complain("E225", message, hint, at, on_key=on_key)
