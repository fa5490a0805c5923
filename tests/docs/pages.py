"""What the pages of the documentation contain: blocks of code, and the commands in them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).parent.parent.parent

GENERATED = {"docs/look-up/cli.md": "the parser's own help, compared in tests/cli/test_command.py"}
"""Pages that no person writes, and what checks them instead."""

PAGES = tuple(
    str(path.relative_to(HOME))
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "tests/README.md")
    for path in sorted(HOME.glob(pattern))
    if str(path.relative_to(HOME)) not in GENERATED
)

_FENCE = re.compile(r"^(\s*)```(\w*)$")
_PROGRAM = re.compile(r"(gpuctl|make|uv|aws|git|cd|export|echo|python|scripts/\S+|\.venv/\S+)( |$)")


@dataclass(frozen=True)
class Block:
    """A block of code: fenced, with its language, or indented by four spaces."""

    page: str
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """Where it is, for the name of a test."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command line of a block, without its comment."""

    block: Block
    line: int
    text: str

    @property
    def name(self) -> str:
        """Where it is and what it is, for the name of a test."""
        return f"{self.block.page}:{self.line}: {self.text}"


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page, in its order."""
    language, start, lines = "", 0, list[str]()
    for number, line in enumerate((HOME / page).read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if start and fence:
            yield Block(page, start, language, "\n".join(lines))
            start = 0
        elif start:
            lines.append(line)
        elif fence:
            language, start, lines = fence[2], number, []
        elif line.startswith("    ") and _PROGRAM.match(line.strip()):
            yield Block(page, number - 1, "", line.strip())
    assert start == 0, f"{page}:{start}: a block without an end"


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a block: every line of `sh`, and what follows `$ ` in a transcript."""
    for number, line in _whole_lines(block):
        text = line.removeprefix("$ ")
        if block.language == "text" and text == line:
            continue  # what a command printed
        if block.language == "sh" and text.strip() and not text.startswith("#"):
            assert _PROGRAM.match(text), f"{block.page}:{number}: no check for `{text}`"
        if block.language in ("", "sh", "text") and _PROGRAM.match(text):
            for part in re.split(r"\s{2,}(?=gpuctl )", text):
                command = re.sub(r"(^|\s)#.*$", "", part).strip()
                yield Command(block, number, command)


def _whole_lines(block: Block) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; one that ends with a backslash has the next one, too."""
    begun = ""
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.endswith("\\"):
            begun += f"{line[:-1].rstrip()} "
            continue
        yield number, begun + (line.lstrip() if begun else line)
        begun = ""
    assert not begun, f"{block.name}: a command without an end"


def spans(page: str) -> Iterator[tuple[int, str]]:
    """Yield the code between backticks in a page's prose and tables, with its line."""
    fenced = False
    for number, line in enumerate((HOME / page).read_text().splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            for match in re.finditer(r"`([^`]+)`", line):
                yield number, match[1]
