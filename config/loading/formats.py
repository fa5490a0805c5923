"""Formats of other tools: gpuctl reads their files as run files. What a format is; the registry.

Each folder of `formats/` with a `format.py` is a format; gpuctl finds it there. A new one touches
nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from config.diagnostic import Diagnostic
from config.loading.overrides import Substitutions
from config.run.requirements import Requires
from config.yaml.marked_yaml import Document

IGNORED = " is ignored: "
"""What is between a field and the reason why it has no effect, in a format's message about it."""


@dataclass(frozen=True)
class Reading:
    """A file of another tool as a run file, None if it cannot be one, and all diagnostics.

    `placeholders` are the names of the file's `${NAME}` that `--set` fills in.
    """

    run_file: Document | None
    diagnostics: list[Diagnostic]
    placeholders: frozenset[str] = frozenset()


ManifestKind = tuple[str, str]
"""`apiVersion` and `kind` of a Kubernetes manifest."""


def _ask_for_nothing(_: Document, __: Substitutions) -> Requires | None:
    return None


def _is_yaml(_: str, __: str) -> Document | None:
    return None


@dataclass(frozen=True)
class Format:
    """A format of another tool.

    `title` is what messages call a file of it. Where its files are not YAML, `compose` makes a
    document of a file's text and path; None for a text of another format. `recognise` says whether
    a document is one, and `read` makes a run file of it. `requirements` are what it asks of nodes,
    for `up --for` alone; those that a run checks stand in the run file.

    Formats of Kubernetes have `jobs`, the manifests that describe a run, and `parts`, others that
    a job uses, each with the message and hint for a file that has no job.

    `is_like_ours` is whether the file may extend a template of gpuctl, and whether people expect a
    shell to read its `env`; both hold for gpuctl's own files. `keys` are keys that `type: task` has
    in this format alone, with their descriptions, and `key_hint` is the hint for one in gpuctl's
    own files. `task_forms` are further forms of a key of `type: task` as JSON Schema, for editors.
    `pages` are the generated halves of its pages in docs/, by name.
    """

    title: str
    recognise: Callable[[Document], bool]
    read: Callable[[Document, Substitutions], Reading]
    compose: Callable[[str, str], Document | None] = _is_yaml
    requirements: Callable[[Document, Substitutions], Requires | None] = _ask_for_nothing
    jobs: tuple[ManifestKind, ...] = ()
    parts: Mapping[ManifestKind, tuple[str, str]] = field(default_factory=dict)
    is_like_ours: bool = False
    pages: Callable[[], Mapping[str, str]] = dict
    keys: Mapping[str, str] = field(default_factory=dict)
    key_hint: str = ""
    task_forms: Mapping[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)


@cache
def formats() -> tuple[Format, ...]:
    """Return all formats, by the names of their folders."""
    (folder,) = import_module("formats").__path__
    names = sorted(path.parent.name for path in Path(folder).glob("*/format.py"))
    return tuple(import_module(f"formats.{name}.format").FORMAT for name in names)


def format_of(document: Document) -> Format | None:
    """Return the format of the document; None for gpuctl's own and for unknown ones."""
    return next((form for form in formats() if form.recognise(document)), None)
