"""Compose YAML's text as PyYAML's nodes, whose marks say where they are in the file.

PyYAML without libyaml, which its wheel does not always have, composes about 40,000 values a second.
The number of values is limited while it composes, so that no file takes longer than a second.
"""

from typing import Any

import yaml
from yaml.composer import Composer
from yaml.error import Mark
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import Resolver
from yaml.scanner import Scanner

from config.diagnostic import Diagnostic
from config.yaml.hints import shorten

PLAIN = "plain"
"""The tag of a scalar without quotes, whose text decides its type."""
STANDARD_TAG = "tag:yaml.org,2002:"
TAGS = {ScalarNode: "str", SequenceNode: "seq", MappingNode: "map"}
MOST_VALUES = 20_000
"""The limit of the values of a file, keys included, as written and with every alias written out."""
_MOST_TABS = 50


class TooManyValuesError(Exception):
    """The error that a file has more than MOST_VALUES values."""

    def __init__(self, mark: Mark) -> None:
        super().__init__()
        self.mark = mark


def compose(text: str, file: str, diagnostics: list[Diagnostic]) -> list[tuple[Mark, Node]]:
    """Return where each document begins, and its root; none if the text is not YAML.

    An empty document is left out. A tab is reported and read as a space, to check the rest too.
    """
    for _ in range(_MOST_TABS):
        try:
            return _documents(text, file)
        except (yaml.YAMLError, RecursionError, TooManyValuesError) as error:
            problem = _explained(error, text, file)
            if problem.code == "E002" or not diagnostics:
                # Reading tabs as spaces may cause other errors: after a tab report only tabs.
                diagnostics.append(problem)
            if problem.code != "E002":
                return []
            text = _with_tabs_as_spaces(text, error)
    return []


def _documents(text: str, file: str) -> list[tuple[Mark, Node]]:
    composing = _Composing(text, file)
    documents = []
    while composing.check_node():
        mark, root = composing.next_mark, composing.get_node()
        if root is not None and not _is_nothing(root):
            documents.append((mark, root))
    return documents


class _Composing(Reader, Scanner, Parser, Composer, Resolver):
    """PyYAML without its constructor; scalars without quotes get the tag `plain`."""

    def __init__(self, text: str, file: str) -> None:
        Reader.__init__(self, text)
        self.name = file  # every mark carries this name
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        Resolver.__init__(self)
        self._values = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._values += 1
        if self._values > MOST_VALUES:
            raise TooManyValuesError(self.next_mark)
        return super().compose_node(parent, index)

    @property
    def next_mark(self) -> Mark:
        """Return where the next value or document begins."""
        mark: Mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        return mark

    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:
        if kind is ScalarNode and implicit[0]:
            return PLAIN
        return STANDARD_TAG + TAGS[kind]


def _is_nothing(root: Node) -> bool:
    """Return whether a document is empty, as after a `---` at the end of a file."""
    return isinstance(root, ScalarNode) and root.tag == PLAIN and not root.value


def _explained(error: Exception, text: str, file: str) -> Diagnostic:
    """Return the diagnostic for an exception of PyYAML."""
    if isinstance(error, TooManyValuesError):
        place = (error.mark.line + 1, error.mark.column + 1)
        return Diagnostic(file, *place, "E008", *too_large())
    if isinstance(error, ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        message = f"YAML forbids the character U+{_code_point(error.character):04X}"
        return Diagnostic(file, line, column, "E004", message, "remove it")
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        assert mark is not None
        place = (mark.line + 1, mark.column + 1)
        if text[mark.index : mark.index + 1] == "\t":
            message = "a tab, where YAML allows spaces only"
            return Diagnostic(file, *place, "E002", message, "use spaces")
        return Diagnostic(file, *place, "E001", *_syntax(error))
    return Diagnostic(file, 1, 1, "E008", "the file is nested too deeply", "flatten it")


def too_large() -> tuple[str, str]:
    """Return message and hint about a file with too many values."""
    return "the file is too large", f"write less than {MOST_VALUES:,} values".replace(",", " ")


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


def _syntax(error: yaml.MarkedYAMLError) -> tuple[str, str]:
    """Return message and hint of a syntax error, with PyYAML's description in one line."""
    context = ""
    if error.context_mark:
        context = f" ({error.context}, which began on line {error.context_mark.line + 1})"
    hint = "check indentation, brackets and quotes here and on the line before"
    return f"not YAML: {shorten(str(error.problem), 80)}{context}", hint
