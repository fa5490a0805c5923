"""Templates: run files that another run file extends with `extends: NAME`.

A template is one of gpuctl's, or one of the user's.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from config.diagnostic import Diagnostic
from config.errors import InputError
from config.files import read_named_file
from config.folders import config_home
from config.loading.kinds import kind_of
from config.mistakes import Mistake
from config.run.run_file import RUN_TYPES, TEMPLATE
from config.yaml.hints import names_hint
from config.yaml.marked_yaml import Ambiguous, Document, merge_documents, read_file

_OURS = Path(__file__).parents[2] / "stacks"
_TYPES = tuple(RUN_TYPES)
_LONGEST_CHAIN = 8


@dataclass(frozen=True)
class Template:
    """A run file that can be extended. `type` is empty if the file does not set it.

    `summary` is the first sentence of the comment at the file's beginning. `is_users`: the template
    is the user's, not gpuctl's.
    """

    name: str
    path: Path
    type: str
    summary: str
    is_users: bool


def templates() -> tuple[Template, ...]:
    """Return all templates, sorted by name, without files that are not run files."""
    return tuple(_template(name) for name in _known())


def users_folder() -> Path:
    """Return the folder of the user's templates."""
    return config_home() / "templates"


def resolve_template(document: Document) -> tuple[Document | None, list[Diagnostic]]:
    """Return the run file merged over the templates that it extends, and all diagnostics.

    The document is None if a template cannot be used. The diagnostics are only about the chain of
    templates; the caller validates the merged content.
    """
    chain, diagnostics = [document], list[Diagnostic]()
    while (name := _extends(chain[-1].data)) is not None:
        mistake = _not_extended(name, chain)
        if mistake is not None:
            return None, [*diagnostics, chain[-1].locate(mistake)]
        path = _path(name)
        template, more = read_file(path)
        diagnostics += more
        if template is None or kind_of(template.data) != "run":
            message, hint = f"template '{name}' is no run file", f"check {path}"
            mistake = Mistake("E216", message, hint, ("extends",))
            return None, [*diagnostics, chain[-1].locate(mistake)]
        if path.parent != _OURS and (_OURS / path.name).exists():
            diagnostics.append(chain[-1].locate(_hiding(name, path)))
        chain.append(template)
    diagnostics += _other_types(chain)
    return reduce(lambda base, over: merge_documents(over, base), reversed(chain)), diagnostics


def _extends(data: Any) -> str | None:
    """Return the template's name, or None; the model reports a value that is not a name."""
    name = data.get("extends")
    if isinstance(name, str) and not isinstance(name, Ambiguous) and re.fullmatch(TEMPLATE, name):
        return name
    return None


def _not_extended(name: str, chain: list[Document]) -> Mistake | None:
    """Return the reason why the last file of the chain cannot extend the template, or None."""
    path = _path(name)
    if not path.is_file():
        hint = names_hint(name, _known())
        return Mistake("E216", f"there is no template '{name}'", hint, ("extends",))
    if path.resolve() in {Path(link.file).resolve() for link in chain}:
        names = " > ".join([*(link.data["extends"] for link in chain)])
        message = f"'{name}' extends itself: {names}"
        return Mistake("E217", message, "let one of them extend nothing", ("extends",))
    if len(chain) == _LONGEST_CHAIN:
        message = f"more than {_LONGEST_CHAIN} files extend each other"
        return Mistake("E217", message, "write some of them into one", ("extends",))
    return None


def _other_types(chain: list[Document]) -> Iterator[Diagnostic]:
    for over, base in pairwise(chain):
        own_type, base_type = over.data.get("type"), base.data.get("type")
        if own_type in _TYPES and base_type in _TYPES and own_type != base_type:
            name = over.data["extends"]
            message = f"'type' is {own_type}, but template '{name}' is of type {base_type}"
            yield over.locate(Mistake("E218", message, "remove it, or extend another", ("type",)))


def _hiding(name: str, path: Path) -> Mistake:
    message = f"template '{name}' is your own ({path}), not gpuctl's of that name"
    return Mistake("W203", message, "give yours another name if that is not meant", ("extends",))


def own_template(name: str) -> Path:
    """Return the path of gpuctl's template of this name, whatever the user has."""
    return _OURS / f"{name}.yaml"


def _path(name: str) -> Path:
    """Return the template's path, the user's before gpuctl's; the file may not exist."""
    users = users_folder() / f"{name}.yaml"
    return users if users.is_file() else own_template(name)


def _known() -> list[str]:
    """Return the names of all templates, sorted."""
    folders = (users_folder(), _OURS)
    names = {path.stem for folder in folders for path in folder.glob("*.yaml")}
    return sorted(name for name in names if re.fullmatch(TEMPLATE, name) and _is_run(_path(name)))


def _is_run(path: Path) -> bool:
    try:
        document, _ = read_file(path)
    except InputError:
        return False
    return document is not None and kind_of(document.data) == "run"


def _template(name: str) -> Template:
    path = _path(name)
    document, _ = read_file(path)
    assert document is not None, "known names are those of files that can be read"
    whole = resolve_template(document)[0] or document
    kind = whole.data.get("type")
    return Template(
        name,
        path,
        type=kind if kind in _TYPES else "",
        summary=_summary(read_named_file(path).decode("utf-8-sig")),
        is_users=path.parent != _OURS,
    )


def _summary(text: str) -> str:
    lines = (line.removeprefix("#").strip() for line in takewhile(_is_comment, text.splitlines()))
    return re.split(r"(?<=\.)\s", " ".join(lines))[0]


def _is_comment(line: str) -> bool:
    return line.startswith("#")
