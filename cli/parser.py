"""How a line is read and how help is written, for every command and group of commands.

The options of `cli.options` are taken before and after a command. Help is grouped, without rich: to
import that takes longer than all the rest of `gpuctl --help`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

from cli.options import SHARED, Options

DOCS = "docs"
"""Where the documentation is, from the top of gpuctl's source."""


class _Help:
    """The help of a command or a group: its docstring, the examples in it, and its page."""

    help: str | None
    epilog: str | None

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the paragraphs of the docstring that are no examples."""
        texts = [part for part in self._paragraphs() if not part.startswith("$ ")]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("\n\n".join(texts))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples and the page of the documentation."""
        examples = [part for part in self._paragraphs() if part.startswith("$ ")]
        if examples:
            with formatter.section("Examples"):
                for line in "\n".join(examples).splitlines():
                    formatter.write(f"  {line.removeprefix('$ ')}\n")
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(f"Documentation: {DOCS}/{self.epilog}\n")

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the first paragraph, whole."""
        return self._paragraphs()[0].replace("\n", " ")

    def _paragraphs(self) -> list[str]:
        return (self.help or "").split("\n\n")


class Command(_Help, TyperCommand):
    """A command that takes the shared options, wherever they are on its part of the line."""

    arguments = math.inf
    """How many arguments are gpuctl's own; behind them a command of the job's begins."""

    has_json = True

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's parameters and the shared options."""
        return _with_shared(super().get_params(ctx), ctx, self.has_json)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; a command for the nodes is passed on as it is."""
        own, rest = _split(self, ctx, args, self.arguments)
        if rest and rest[0] != "--":
            own.append("--")
        return super().parse_args(ctx, [*own, *rest])

    def invoke(self, ctx: Any) -> Any:
        """Run the command, which asks `cli.options` for what the shared options say."""
        _take_shared(ctx)
        if not self.has_json and ctx.find_root().obj.as_json:
            ctx.fail(f"`{ctx.command_path}` has no JSON form; leave --json out.")
        ctx.find_root().obj.start_log()
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return `[OPTIONS]` and the arguments, as messages and pages write them."""
        pieces = super().collect_usage_pieces(ctx)
        return [piece.replace("{", "").replace("}", "") for piece in pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the command's own options, and the names of the shared ones."""
        _write_options(self.get_params(ctx), ctx, formatter)


class CommandForNode(Command):
    """A command with a cluster and a node in front of somebody else's command."""

    arguments = 2
    has_json = False


class CommandForNodes(Command):
    """A command with a cluster in front of somebody else's command."""

    arguments = 1


class CommandGroup(_Help, TyperGroup):
    """A group of commands that takes the shared options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the group's parameters and the shared options."""
        return _with_shared(super().get_params(ctx), ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words in front of the command."""
        own, rest = _split(self, ctx, args, 0)
        return super().parse_args(ctx, [*own, *rest])

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the line names."""
        _take_shared(ctx)
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by their groups, then the options."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            if not command.hidden:
                panel = getattr(command, "rich_help_panel", None) or "Commands"
                panels.setdefault(panel, []).append((name, command.get_short_help_str()))
        widest = max(len(name) for rows in panels.values() for name, _ in rows)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl([(f"{name:<{widest}}", text) for name, text in rows])
        _write_options(self.get_params(ctx), ctx, formatter)


def _with_shared(own: list[Any], ctx: Any, has_json: bool = True) -> list[Any]:
    """Return a command's parameters with the shared options, the root's, in front of --help."""
    if ctx.parent is None:
        return own
    names = SHARED if has_json else SHARED - {"as_json"}
    shared = (param for param in ctx.find_root().command.params if param.name in names)
    return [*own[:-1], *shared, *own[-1:]]


def _split(
    command: Any, ctx: Any, args: list[str], arguments: float
) -> tuple[list[str], list[str]]:
    """Return the words that are for this parser, in the form that it reads, and the rest."""
    if ctx.resilient_parsing:
        args = _joined(args)
    values = {
        word: not param.is_flag
        for param in command.get_params(ctx)
        if param.param_type_name == "option"
        for word in (*param.opts, *param.secondary_opts)
    }
    if ctx.resilient_parsing and args and values.get(args[-1]):
        # The shell completes the value of this option. With an option that lacks its value click
        # would parse no argument, and completion would not know the cluster or the run.
        args = args[:-1]
    end = own_words(args, values, arguments)
    return [_named_lab(word) for word in args[:end]], args[end:]


def _joined(words: list[str]) -> list[str]:
    """Return the words with `--lab`, `=`, `b` as one, which bash gives apart when it completes."""
    joined: list[str] = []
    for word in words:
        if word == "=" and joined:
            joined[-1] += "="
        elif joined and joined[-1].startswith("--") and joined[-1].endswith("="):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _take_shared(ctx: Any) -> None:
    """Keep what the shared options say on this part of the line; only the root's code gets them."""
    ctx.find_root().ensure_object(Options).take(ctx.params)
    if ctx.parent is not None:
        ctx.params = {name: value for name, value in ctx.params.items() if name not in SHARED}


def _write_options(params: list[Any], ctx: Any, formatter: Any) -> None:
    """Write arguments and options; the shared options are explained by the root's help alone."""
    is_root = ctx.parent is None
    elsewhere = set() if is_root else SHARED - {"as_json"}
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in params:
        record = param.get_help_record(ctx)
        if record is None or param.name in elsewhere:
            continue
        title, name = "Options", record[0]
        if isinstance(param, TyperArgument):
            title, name = "Arguments", param.display_name_raw
        elif is_root:
            title = param.rich_help_panel or title
            name += param.metavar or "" if param.is_flag else ""
        sections.setdefault(title, []).append((name, record[1]))
    for title, rows in sections.items():
        with formatter.section(title):
            formatter.write_dl(rows)
    if elsewhere:
        names = ", ".join(param.opts[0] for param in params if param.name in elsewhere)
        formatter.write_paragraph()
        formatter.write_text(f"Options of all commands, see `gpuctl --help`: {names}.")


def own_words(words: Sequence[str], options: Mapping[str, bool], arguments: float) -> int:
    """Return how many of the first words are gpuctl's own: its options and its arguments.

    `options` says of each option whether a value follows it. After `arguments` arguments the first
    word that is no option of ours begins the rest; so does `--`, wherever it is.
    """
    place = seen = 0
    while place < len(words) and words[place] != "--":
        word = words[place]
        name = word.partition("=")[0]
        is_argument = not word.startswith("-") or word == "-"
        if seen >= arguments and (is_argument or name not in options):
            break
        seen += is_argument
        place += 2 if options.get(word) else 1
    return min(place, len(words))


def _named_lab(word: str) -> str:
    """Return `--lab=NAME` as the option `--lab-name=NAME`; any other word as it is."""
    return f"--lab-name={word[6:]}" if word.startswith("--lab=") else word
