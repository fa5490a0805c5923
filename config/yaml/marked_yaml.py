"""Read YAML files into data whose every key and value can be found again in the text.

PyYAML's composer makes nodes with marks. This module makes the data from the nodes instead of
PyYAML's constructor, because the constructor silently keeps the last of two equal keys and reads
YAML 1.1 (`no` is false, `010` is 8). Only text that all readers understand alike becomes a number,
a boolean or null.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import Resolver
from yaml.scanner import Scanner

from config.diagnostic import Diagnostic
from config.errors import InputError
from config.findings import Fault, Path

PLAIN = "plain"
"""The tag of a scalar without quotes, whose text decides its type."""
_TAGS = {ScalarNode: "str", SequenceNode: "seq", MappingNode: "map"}
_STANDARD_TAG = "tag:yaml.org,2002:"
TEXT = _STANDARD_TAG + "str"
"""The tag of a scalar that is text, whatever the text looks like."""
_LARGEST_FILE = 1 << 20
_MOST_NODES = 100_000
_MOST_TABS = 50
_NULL = re.compile(r"|~|null|Null|NULL")
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]{0,17})\.[0-9]+")
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

    @property
    def file(self) -> str:
        """The file's path, as it was given to the reader."""
        return str(self.root.start_mark.name)

    def locate(self, fault: Fault) -> Diagnostic:
        """Return the diagnostic for a fault, with file, line and column."""
        place = self.position(fault.at, on_key=fault.on_key)
        return Diagnostic(*place, fault.code, fault.message, fault.hint)

    def position(self, path: Path, *, on_key: bool) -> tuple[str, int, int]:
        """Return file, line and column, from 1, of the value at `path`, or of its key.

        If the path does not exist, return those of the nearest value above it.
        """
        key, node = self._nearest(path)
        mark = key.start_mark if on_key and key is not None else node.start_mark
        return mark.name, mark.line + 1, mark.column + 1

    def node(self, path: Path) -> Node:
        """Return YAML's node of the value at `path`, or of the nearest value above it."""
        return self._nearest(path)[1]

    def text_at(self, path: Path) -> str:
        """Return the text of the scalar at `path`, without quotes."""
        node: Node = self.root
        for part in path:
            child = _child(node, part)
            if child is None:
                return ""
            node = child[1]
        return node.value if isinstance(node, ScalarNode) else ""

    def _nearest(self, path: Path) -> tuple[Node | None, Node]:
        key: Node | None = None
        node = self.root
        for part in path:
            child = _child(node, part)
            if child is None:
                break
            key, node = child
        return key, node


def read_file(path: FilePath) -> tuple[Document | None, list[Diagnostic]]:
    """Read a file as `read_yaml` does; the diagnostics name it as `path` does.

    Raises InputError for a file that cannot be read.
    """
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise InputError(f"{path} has more than 1 MiB", "is it the right file?")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "check the path") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]  # does not include the byte order mark
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode()) + 1
        message, hint = "the file is not UTF-8 text", "save it as UTF-8"
        return None, [Diagnostic(str(path), line, column, "E004", message, hint)]
    return read_yaml(text, str(path))


def read_yaml(text: str, file: str) -> tuple[Document | None, list[Diagnostic]]:
    """Return the document, or None if the text cannot be read as one, and all diagnostics.

    Every text, however broken, gives diagnostics and no exception of PyYAML.
    """
    diagnostics: list[Diagnostic] = []
    root = _compose(text, file, diagnostics)
    if root is None:
        return None, diagnostics
    reading = _Construction(file, diagnostics)
    try:
        if _expanded_size(root) > _MOST_NODES:
            reading.complain(
                root, "E008", "the file is too large", "write less than 100 000 values"
            )
            return None, diagnostics
        data = reading.value(root)
    except RecursionError:
        reading.complain(root, "E008", "the file is nested too deeply", "flatten it")
        return None, diagnostics
    except _LoopError as loop:
        reading.complain(loop.node, "E008", "an alias is within its own anchor", "write it out")
        return None, diagnostics
    return Document(data, root), diagnostics


def is_null(node: Node) -> bool:
    """Return whether the node is a bare null (or nothing at all)."""
    return node.tag == PLAIN and bool(_NULL.fullmatch(node.value))


def document_of(root: Node) -> Document:
    """Return the document of a tree whose parts were already read and checked."""
    return Document(_Construction("", []).value(root), root)


class _Composing(Reader, Scanner, Parser, Composer, Resolver):
    """PyYAML without its constructor; scalars without quotes get the tag `plain`."""

    def __init__(self, text: str, file: str) -> None:
        Reader.__init__(self, text)
        self.name = file  # every mark carries this name
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        Resolver.__init__(self)

    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:
        if kind is ScalarNode and implicit[0]:
            return PLAIN
        return _STANDARD_TAG + _TAGS[kind]


def _compose(text: str, file: str, diagnostics: list[Diagnostic]) -> Node | None:
    """Return the node tree. A tab is reported and read as a space, to check the rest too."""
    for _ in range(_MOST_TABS):
        try:
            root = _Composing(text, file).get_single_node()
        except (yaml.YAMLError, RecursionError) as error:
            found = _explained(error, text, file)
            if found.code == "E002" or not diagnostics:
                # Reading tabs as spaces may cause other errors: after a tab report only tabs.
                diagnostics.append(found)
            if found.code != "E002":
                return None
            text = _with_tabs_as_spaces(text, error)
        else:
            if root is None:
                hint = "write a cluster or a run in it"
                diagnostics.append(Diagnostic(file, 1, 1, "E005", "the file is empty", hint))
            return root
    return None


def _explained(error: Exception, text: str, file: str) -> Diagnostic:
    """Return the diagnostic for an exception of PyYAML."""
    if isinstance(error, ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        message = f"YAML forbids the character U+{_code_point(error.character):04X}"
        return Diagnostic(file, line, column, "E004", message, "remove it")
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        assert mark is not None
        place = (file, mark.line + 1, mark.column + 1)
        if text[mark.index : mark.index + 1] == "\t":
            return Diagnostic(*place, "E002", "a tab, where YAML allows spaces only", "use spaces")
        return Diagnostic(*place, *_syntax(error))
    return Diagnostic(file, 1, 1, "E008", "the file is nested too deeply", "flatten it")


def _with_tabs_as_spaces(text: str, error: Exception) -> str:
    """Return the text with the tabs that stopped PyYAML as one space each, so columns stay true."""
    assert isinstance(error, yaml.MarkedYAMLError)
    assert error.problem_mark is not None
    start = end = error.problem_mark.index
    while text[end : end + 1] == "\t":
        end += 1
    return text[:start] + " " * (end - start) + text[end:]


def _code_point(character: Any) -> int:
    return ord(character) if isinstance(character, str) else int(character)


def _syntax(error: yaml.MarkedYAMLError) -> tuple[str, str, str]:
    """Return code, message and hint of a syntax error, with PyYAML's description in one line."""
    if error.context == "expected a single document in the stream":
        return "E006", "a second document begins", "put one document into a file"
    context = ""
    if error.context_mark:
        context = f" ({error.context}, which began on line {error.context_mark.line + 1})"
    hint = "check indentation, brackets and quotes here and on the line before"
    return "E001", f"not YAML: {error.problem}{context}", hint


def _child(node: Node, part: str | int) -> tuple[Node | None, Node] | None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if key.value == part:
                return key, value
    elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
        return None, node.value[part]
    return None


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

    def _new_value(self, node: Node) -> Any:
        if node.tag not in (PLAIN, _STANDARD_TAG + _TAGS[type(node)]):
            tag = node.tag.replace(_STANDARD_TAG, "!!")
            self.complain(node, "E007", f"the tag {tag} means nothing to gpuctl", "remove the tag")
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
            name = key.value
            if name in data:
                line = key.start_mark.line + 1
                self.complain(
                    *(key, "E003"),
                    f"'{name}' is given twice, on lines {lines[name]} and {line}",
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
