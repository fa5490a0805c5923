"""`${{ … }}` in texts of dstack's files, and the text that takes its place.

dstack replaces `${{ run.args }}` in commands, `${{ secrets.NAME }}` in variables and the registry's
account, `${{ env.NAME }}` in the latter, `${{ groups[0].nodes[0].IP_ADDRESS }}` in the commands of
groups; `$$` is `$` (utils/interpolator.py and nodes_interpolator.py of dstackai/dstack@511c318c,
2026-08-21).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from config.mistakes import Path, path_text
from formats.dstack.dstack_file import DstackFile

_NEXT = re.compile(
    r"(?P<plain>[^$]*)(?:\$(?P<escaped>\$)|(?P<more>.*?)\$\{\{(?P<name>.*?)\}\})", re.S
)
_ADDRESS = re.compile(r"groups\[([0-9]{1,9})\]\.nodes\[([0-9]{1,9})\]\.IP_ADDRESS")


@dataclass(frozen=True)
class Reference:
    """`${{ name }}` in a text."""

    name: str

    @property
    def namespace(self) -> str:
        """The part before the first dot or bracket."""
        return re.split(r"[.\[]", self.name)[0]

    @property
    def key(self) -> str:
        """The part after the first dot."""
        return self.name.partition(".")[2]


def split_text(text: str) -> list[str | Reference]:
    """Return plain texts and references in turn, as dstack reads them.

    A `$$` is one `$`, but not between another `$` and the next reference.
    """
    parts: list[str | Reference] = []
    at = 0
    while match := _NEXT.match(text, at):
        plain = match["plain"] + (match["escaped"] or match["more"] or "")
        parts += [plain] if plain else []
        if match["name"] is not None:
            parts.append(Reference(match["name"].strip()))
        at = match.end()
    return [*parts, text[at:]] if text[at:] else parts


def command_text(reading: DstackFile, at: Path, groups: tuple[int, ...], name: str) -> str:
    """Return a command with its references replaced; `groups` are the numbers of their nodes."""
    return "".join(
        part if isinstance(part, str) else _in_command(reading, at, part, groups, name)
        for part in split_text(reading.text(at))
    )


def _in_command(
    reading: DstackFile, at: Path, reference: Reference, groups: tuple[int, ...], name: str
) -> str:
    if reference.name == "run.args":
        return ""  # as in dstack without arguments
    if reference.name == "run.name":
        return name
    address = _ADDRESS.fullmatch(reference.name)
    if address:
        group, node = int(address[1]), int(address[2])
        if group < len(groups) and node < groups[group]:
            return f"${{{{ nodes[{sum(groups[:group]) + node}].ip }}}}"
        refuse_reference(reading, at, reference, "there is no such node in `groups`")
    elif reference.namespace == "secrets":
        hint = f"write {reference.key}=${{{{ {reference.name} }}}} into `env`, and use its variable"
        refuse_reference(reading, at, reference, hint)
    else:
        refuse_reference(reading, at, reference, "use a variable of the environment")
    return ""


def refuse_reference(reading: DstackFile, at: Path, reference: Reference, hint: str) -> None:
    """Refuse a reference that means nothing where it is."""
    message = f"'{path_text(at)}' has ${{{{ {reference.name} }}}}, which gpuctl cannot replace"
    reading.complain("E228", message, hint, at)


def secret_text(
    reading: DstackFile, at: Path, text: str, namespaces: Sequence[str] = ("secrets",)
) -> list[str | Reference]:
    """Return the parts of a text in which only names of these namespaces may be replaced."""
    parts = split_text(text)
    for part in parts:
        if isinstance(part, Reference) and not _is_known(part, namespaces):
            hint = f"use ${{{{ {namespaces[0]}.NAME }}}}, or write the text"
            refuse_reference(reading, at, part, hint)
    return parts


def _is_known(reference: Reference, namespaces: Sequence[str]) -> bool:
    name = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", reference.key)
    return reference.namespace in namespaces and name is not None
