"""Read YAML files into data whose every key and value can be found again in the text.

PyYAML's composer makes nodes with marks (composing.py). This module makes the data from them, not
PyYAML's constructor, because the constructor silently keeps the last of two equal keys and reads
YAML 1.1 (`no` is false, `010` is 8). Only text that all readers understand alike becomes a number,
a boolean or null.

One document can be merged over another. The merge works on YAML nodes and not on data, so every
value keeps the file, line and column in which it was written, and a diagnostic about the result
names the right file.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from config.diagnostic import Diagnostic
from config.files import read_named_file
from config.mistakes import Mistake, Path, path_text
from config.yaml.composing import MOST_VALUES, PLAIN, STANDARD_TAG, TAGS, compose, too_large
from config.yaml.hints import quote, shorten

TEXT = STANDARD_TAG + "str"
"""The tag of a scalar that is text, whatever the text looks like."""
_LARGEST_FILE = 1 << 20
_NULL = re.compile(r"|~|null|Null|NULL")
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]{0,17})\.[0-9]+")
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # PyYAML counts these
# YAML 1.2's numbers. PyYAML decides which other texts YAML 1.1 does not read as text.
_NUMBER_1_2 = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+")


class Ambiguous(str):
    """A bare value, as written, that YAML 1.1 and 1.2, or two readers, understand differently."""

    __slots__ = ()


@dataclass(frozen=True)
class Document:
    """A file's data and the position of each value. Sequences are tuples, keys are text."""

    data: Any
    root: Node
    begins: tuple[int, int] = (1, 1)
    """Line and column of the document's `---`, or of its first line."""
    beside: tuple["Document", ...] = ()
    """The other documents of its file."""
    sources: Mapping[Path, Path] = field(default_factory=dict)
    """The path of the value in the file that became the value here, if paths changed."""
    _entries: dict[int, dict[str, tuple[Node, Node]]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Keys and values by name of the mappings that were searched, by the mapping's `id`."""

    @property
    def file(self) -> str:
        """The file's path, as it was given to the reader."""
        return str(self.root.start_mark.name)

    def locate(self, mistake: Mistake) -> Diagnostic:
        """Return the diagnostic for a mistake, with file, line and column."""
        place = self.position(mistake.at, on_key=mistake.on_key)
        if mistake.row:
            place = self._position_of_row(mistake.at, mistake.row)
        return Diagnostic(*place, mistake.code, self._in_words_of_file(mistake), mistake.hint)

    def _in_words_of_file(self, mistake: Mistake) -> str:
        """Return the mistake's message with the path that the value has in the file."""
        for end in range(len(mistake.at), 0, -1):
            if source := self.sources.get(mistake.at[:end]):
                at, at_in_file = mistake.at, (*source, *mistake.at[end:])
                message = mistake.message.replace(
                    f"'{path_text(at)}'", f"'{path_text(at_in_file)}'"
                )
                parent, container = f"'{path_text(at[:-1])}'", f"'{path_text(at_in_file[:-1])}'"
                return message.replace(parent, container)
        return mistake.message

    def position(self, path: Path, *, on_key: bool) -> tuple[str, int, int]:
        """Return file, line and column, from 1, of the value at `path`, or of its key.

        If the path does not exist, return those of the nearest value above it.
        """
        key, node = self._nearest(path)
        mark = key.start_mark if on_key and key is not None else node.start_mark
        return mark.name, mark.line + 1, mark.column + 1

    def _position_of_row(self, path: Path, row: int) -> tuple[str, int, int]:
        """Return file, line and column, from 1, of a row of the text at `path`.

        The text may have more rows before those of the file. A row that is not found in the file as
        it is in the text, because YAML folds it or it has escapes, has the position of the text.
        """
        node = self.node(path)
        begin, end = node.start_mark, node.end_mark
        rows = node.value.rstrip().split("\n") if isinstance(node, ScalarNode) else []
        content = rows[row - 1].strip() if row <= len(rows) else ""
        lines = _LINE_BREAK.split(begin.buffer or "")
        is_block = lines[begin.line : begin.line + 1] and lines[begin.line][begin.column] in "|>"
        first = begin.line + 1 if is_block else begin.line
        last = end.line if is_block or end.column == 0 else end.line + 1
        written = "\n".join(lines[first:last]).rstrip().split("\n")
        expected = first + row - 1 - max(0, len(rows) - len(written))
        places = [n for n, line in enumerate(written, first) if content and content in line]
        if not places:
            return begin.name, begin.line + 1, begin.column + 1
        line = min(places, key=lambda number: abs(number - expected))
        start = begin.column if line == begin.line else 0
        return begin.name, line + 1, lines[line].index(content, start) + 1

    def node(self, path: Path) -> Node:
        """Return YAML's node of the value at `path`, or of the nearest value above it."""
        return self._nearest(path)[1]

    def text_at(self, path: Path) -> str:
        """Return the text of the scalar at `path`, without quotes."""
        node: Node = self.root
        for part in path:
            child = self._child(node, part)
            if child is None:
                return ""
            node = child[1]
        return node.value if isinstance(node, ScalarNode) else ""

    def _nearest(self, path: Path) -> tuple[Node | None, Node]:
        key: Node | None = None
        node = self.root
        for part in path:
            child = self._child(node, part)
            if child is None:
                break
            key, node = child
        return key, node

    def _child(self, node: Node, part: str | int) -> tuple[Node | None, Node] | None:
        if isinstance(node, MappingNode):
            if id(node) not in self._entries:
                # Of equal keys the first counts.
                entries = ((key.value, (key, value)) for key, value in reversed(node.value))
                self._entries[id(node)] = {n: e for n, e in entries if isinstance(n, str)}
            return self._entries[id(node)].get(str(part))
        if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
            return None, node.value[part]
        return None


def read_file(path: FilePath) -> tuple[Document | None, list[Diagnostic]]:
    """Read a file as `read_yaml` does; the diagnostics name it as `path` does.

    Raises InputError for a file that cannot be read.
    """
    return _only(*read_documents(path))


def read_documents(
    path: FilePath, composers: Iterable[Callable[[str, str], Document | None]] = ()
) -> tuple[list[Document], list[Diagnostic]]:
    """Return a file's documents, none if it cannot be read as YAML, and all diagnostics.

    Empty documents are left out. Of a text that one of the `composers` reads, which get the text
    and the path, its document alone is returned. Raises InputError for a file that cannot be read.
    """
    content = read_named_file(path, most=_LARGEST_FILE)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]  # does not include the byte order mark
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode()) + 1
        message, hint = "the file is not UTF-8 text", "save it as UTF-8"
        return [], [Diagnostic(str(path), line, column, "E004", message, hint)]
    for compose_text in composers:
        document = compose_text(text, str(path))
        if document is not None:
            return [document], []
    return _read(text, str(path))


def read_yaml(text: str, file: str) -> tuple[Document | None, list[Diagnostic]]:
    """Return the document, or None if the text cannot be read as one, and all diagnostics.

    Every text, however broken, gives diagnostics and no exception of PyYAML.
    """
    return _only(*_read(text, file))


def second_document(document: Document) -> Diagnostic:
    """Return the diagnostic about a document that no file of its kind may have."""
    return Diagnostic(
        document.file,
        *document.begins,
        "E006",
        "a second document begins",
        "put one document into a file",
    )


def _only(
    documents: list[Document], diagnostics: list[Diagnostic]
) -> tuple[Document | None, list[Diagnostic]]:
    if documents[1:]:
        return None, [*diagnostics, second_document(documents[1])]
    return (documents[0] if documents else None), diagnostics


def _read(text: str, file: str) -> tuple[list[Document], list[Diagnostic]]:
    diagnostics: list[Diagnostic] = []
    composed = compose(text, file, diagnostics)
    reading = _Construction(file, diagnostics)
    documents = []
    try:
        for mark, root in composed:
            if _expanded_size(root) > MOST_VALUES:
                reading.complain(root, "E008", *too_large())
                return [], diagnostics
            data = reading.value(root)
            documents.append(Document(data, root, (mark.line + 1, mark.column + 1)))
    except RecursionError:
        reading.complain(root, "E008", "the file is nested too deeply", "flatten it")
        return [], diagnostics
    except _LoopError as loop:
        reading.complain(loop.node, "E008", "an alias is within its own anchor", "write it out")
        return [], diagnostics
    if not documents and not diagnostics:
        hint = "write a cluster or a run in it"
        diagnostics.append(Diagnostic(file, 1, 1, "E005", "the file is empty", hint))
    return documents, diagnostics


def is_null(node: Node) -> bool:
    """Return whether the node is a bare null (or nothing at all)."""
    return node.tag == PLAIN and bool(_NULL.fullmatch(node.value))


def document_of(root: Node) -> Document:
    """Return the document of a tree whose parts were already read and checked."""
    return Document(_Construction("", []).value(root), root)


def _expanded_size(root: Node) -> int:
    """Return the number of values with every alias written out; each node is visited once."""
    sizes: dict[int, int] = {}

    def size(node: Node) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = 0  # a loop is found later, when its position is known
            sizes[id(node)] = 1 + sum(size(child) for child in _children(node))
        return sizes[id(node)]

    return size(root)


def _children(node: Node) -> Iterator[Node]:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, SequenceNode):
        yield from node.value


class _LoopError(Exception):
    def __init__(self, node: Node) -> None:
        self.node = node


class _Construction:
    """Makes data from nodes and appends its findings to `diagnostics`."""

    def __init__(self, file: str, diagnostics: list[Diagnostic]) -> None:
        self._file = file
        self._diagnostics = diagnostics
        self._open: set[int] = set()
        self._done: dict[int, Any] = {}

    def complain(self, node: Node, code: str, message: str, hint: str) -> None:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        self._diagnostics.append(Diagnostic(self._file, line, column, code, message, hint))

    def value(self, node: Node) -> Any:
        if id(node) in self._open:
            raise _LoopError(node)
        if id(node) not in self._done:  # an alias is reported once, at its anchor
            self._open.add(id(node))
            self._done[id(node)] = self._new_value(node)
            self._open.remove(id(node))
        return self._done[id(node)]

    def _check_tag(self, node: Node) -> None:
        if node.tag not in (PLAIN, STANDARD_TAG + TAGS[type(node)]):
            tag = shorten(node.tag.replace(STANDARD_TAG, "!!"))
            self.complain(node, "E007", f"the tag {tag} means nothing to gpuctl", "remove the tag")

    def _new_value(self, node: Node) -> Any:
        self._check_tag(node)
        if isinstance(node, MappingNode):
            return self._mapping(node)
        if isinstance(node, SequenceNode):
            return tuple(self.value(item) for item in node.value)
        return _scalar(node.value) if node.tag == PLAIN else node.value

    def _mapping(self, node: MappingNode) -> dict[str, Any]:
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self.complain(key, "E009", "a key is not text", "write a name before the colon")
                continue
            self._check_tag(key)
            name = key.value
            if name in data:
                line = key.start_mark.line + 1
                self.complain(
                    key,
                    "E003",
                    f"{quote(name)} is given twice, on lines {lines[name]} and {line}",
                    "keep one of them",
                )
                continue
            data[name] = self.value(value)
            lines[name] = key.start_mark.line + 1
        return data


def _scalar(text: str) -> Any:
    """Return the value of a scalar without quotes."""
    if _NULL.fullmatch(text):
        return None
    if _BOOLEAN.fullmatch(text):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    yaml_1_1 = yaml.SafeLoader.yaml_implicit_resolvers.get(text[0], ())
    if _NUMBER_1_2.fullmatch(text) or any(
        pattern.match(text) for tag, pattern in yaml_1_1 if not tag.endswith((":merge", ":value"))
    ):
        return Ambiguous(text)
    return text


_MAPPING = "tag:yaml.org,2002:map"


def merge_documents(over: Document, base: Document) -> Document:
    """Return `base` with the values of `over`: mappings merge by key, other values replace.

    A null removes the value of `base`, as in a JSON merge patch (RFC 7396). `env` counts as a
    mapping even if it is a list of NAME=value. The keys of `base` come first; the result has the
    position of `over`.
    """
    return document_of(_merge_nodes(over.root, base.root))


def _merge_nodes(over: Node, base: Node) -> Node:
    if not (isinstance(over, MappingNode) and isinstance(base, MappingNode)):
        return over
    merged = _entries(base)
    for name, (key, value) in _entries(over).items():
        if name not in merged:
            merged[name] = key, value
        elif is_null(value):
            del merged[name]
        elif name == "env":
            merged[name] = key, _merge_nodes(_as_mapping(value), _as_mapping(merged[name][1]))
        else:
            merged[name] = key, _merge_nodes(value, merged[name][1])
    return MappingNode(over.tag, [*merged.values()], over.start_mark, over.end_mark)


def _entries(node: MappingNode) -> dict[str, tuple[Node, Node]]:
    """Return keys and values by name; of a repeated key the first, as everywhere else."""
    entries: dict[str, tuple[Node, Node]] = {}
    for key, value in node.value:
        if isinstance(key, ScalarNode):
            entries.setdefault(key.value, (key, value))
    return entries


def _as_mapping(node: Node) -> Node:
    """Return a list of NAME=value and NAME as a mapping; any other node unchanged."""
    if not isinstance(node, SequenceNode):
        return node
    entries: dict[str, tuple[Node, Node]] = {}
    for item in node.value:
        if not isinstance(item, ScalarNode):
            return node
        name, equals, text = item.value.partition("=")
        is_secret = not equals and name.isascii() and name.isidentifier()
        if name in entries or not (equals or is_secret):
            return node
        marks = item.start_mark, item.end_mark
        value: Node = ScalarNode(TEXT, text, *marks)
        if is_secret:
            pair = ScalarNode(TEXT, "secret", *marks), ScalarNode(TEXT, name, *marks)
            value = MappingNode(_MAPPING, [pair], *marks)
        entries[name] = ScalarNode(TEXT, name, *marks), value
    return MappingNode(node.tag, [*entries.values()], node.start_mark, node.end_mark)
