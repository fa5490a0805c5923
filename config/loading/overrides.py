"""Values of a run's command line that override its file and are checked as if written in it.

Of a manifest it is the values of placeholders, and a folder of runtimes.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from yaml.error import Mark
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from config.diagnostic import Diagnostic
from config.errors import InputError
from config.yaml.composing import PLAIN
from config.yaml.hints import quote
from config.yaml.marked_yaml import TEXT, Document, document_of, merge_documents

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Substitutions:
    """`placeholders`: each NAME=VALUE of `--set`; `runtimes`: the folder of `--runtimes`."""

    placeholders: tuple[str, ...] = ()
    runtimes: Path | None = None

    def values(self) -> Mapping[str, str]:
        """Return the placeholders' values by name; of a name the last one counts.

        Raises InputError for one that is not NAME=VALUE.
        """
        values = {}
        for text in self.placeholders:
            name, equals, value = text.partition("=")
            if not equals or not _NAME.fullmatch(name):
                raise InputError(f"--set is {quote(text)}", "write NAME=VALUE")
            values[name] = value
        return values


NO_SUBSTITUTIONS = Substitutions()


def unused_values(given: Substitutions, names: Collection[str]) -> list[Diagnostic]:
    """Return a warning for each `--set` of a name that is no placeholder."""
    diagnostics = []
    for line, name in enumerate(given.values(), 1):
        if name not in names:
            message = f"--set {quote(name)} fills in nothing: there is no ${{{name}}}"
            diagnostics.append(Diagnostic("--set", line, 1, "W208", message, "check the name"))
    return diagnostics


@dataclass(frozen=True)
class Overrides:
    """`env`: each NAME=VALUE; `nodes`: a number, as written; `manifest`: what a manifest needs.

    Complaints about them are located in `--env` (the line is its number on the command line) and
    `--nodes`.
    """

    env: tuple[str, ...] = ()
    nodes: str | None = None
    manifest: Substitutions = NO_SUBSTITUTIONS

    def applied(self, document: Document) -> Document:
        """Return the document with these values instead of the file's; of a NAME the last wins.

        A variable that a role sets is overridden there too.
        """
        root = document.root
        if not isinstance(root, MappingNode) or not (self.env or self.nodes is not None):
            return document
        entries = list[tuple[Node, Node]]()
        if self.env:
            entries.append(_entry("env", self._env()))
        if self.nodes is not None:
            mark = _mark("--nodes", 1)
            entries.append(_entry("nodes", ScalarNode(PLAIN, self.nodes, mark, mark)))
        if roles := list(self._roles(document.data.get("roles"))):
            entries.append(_entry("roles", _mapping(roles)))
        over = MappingNode(root.tag, entries, root.start_mark, root.end_mark)
        merged = merge_documents(document_of(over), document)
        given = {key.value for key, _ in entries}
        sources = {at: source for at, source in document.sources.items() if at[0] not in given}
        return replace(merged, sources=sources)

    def _roles(self, roles: Any) -> Iterable[tuple[Node, Node]]:
        for name, role in roles.items() if isinstance(roles, dict) else ():
            env = role.get("env") if isinstance(role, dict) else None
            own_names = {str(entry).partition("=")[0] for entry in env or ()}
            if own_names & {entry.partition("=")[0] for entry in self.env}:
                yield _entry(name, _mapping([_entry("env", self._env(own_names))]))

    def _env(self, names: set[str] | None = None) -> SequenceNode:
        """Return the variables, or those of `names`, as a list of the file would have them."""
        last = {text.partition("=")[0]: line for line, text in enumerate(self.env, start=1)}
        nodes = [
            ScalarNode(TEXT, self.env[line - 1], _mark("--env", line), _mark("--env", line))
            for name, line in last.items()
            if names is None or name in names
        ]
        return SequenceNode("tag:yaml.org,2002:seq", nodes, nodes[0].start_mark, nodes[0].end_mark)


def _entry(name: str, value: Node) -> tuple[Node, Node]:
    return ScalarNode(TEXT, name, value.start_mark, value.end_mark), value


def _mapping(entries: list[tuple[Node, Node]]) -> MappingNode:
    mark = entries[0][1].start_mark
    return MappingNode("tag:yaml.org,2002:map", entries, mark, mark)


def _mark(option: str, line: int) -> Mark:
    return Mark(option, 0, line - 1, 0, None, 0)
