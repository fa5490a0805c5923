"""Command lines of gpuctl, read by its own parser without running anything."""

import re
from collections.abc import Iterator
from typing import Any

import typer

from cli.main import app

PLACEHOLDERS = {
    "CLUSTER": "demo",
    "CODE": "InternalError",
    "FILE": "FILE",
    "ID": "abcdefgh",
    "K": "1",
    "LAB": "b",
    "N": "1",
    "NAME": "NAME",
    "RUN": "train-4f2a1c",
    "TYPE": "p5.48xlarge",
    "demo-node0": "i-0123456789abcdef0",
    "demo-node1": "i-0123456789abcdef0",
}
"""What a person would write for the words of a page that stand for others."""


def spelled_out(text: str) -> str:
    """Return the line with every option that it has in brackets, and the first of `a|b`."""
    text = re.sub(r"[\[\]]", "", text)
    return re.sub(r"(\w)\|[\w|]+", r"\1", text)


def parsed(words: list[str]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the command's path and its parameters; click's UsageError for a wrong line."""
    words = [PLACEHOLDERS.get(word, word) for word in words]
    command: Any = typer.main.get_command(app)
    path: list[str] = []
    context = command.make_context("gpuctl", words)
    while hasattr(command, "commands"):
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        name, command, rest = command.resolve_command(context, rest)
        path.append(name)
        context = command.make_context(name, rest, parent=context)
    return tuple(path), context.params


def complaints(words: list[str]) -> Iterator[str]:
    """Yield what is wrong with the beginning of a command line, as prose has it."""
    command: Any = typer.main.get_command(app)
    options = _options(command)
    rest = iter(words)
    for word in rest:
        if "…" in word or word == "--":
            return
        if word.startswith("-"):
            option = word.partition("=")[0]
            if option not in options:
                yield f"{command.name} has no option {option}"
            elif options[option] and "=" not in word:
                next(rest, None)
        elif hasattr(command, "commands"):
            name = word if word in command.commands else getattr(command, "default", word)
            if name not in command.commands:
                yield f"{command.name} has no command {word}"
                return
            command = command.commands[name]
            options |= _options(command)


def _options(command: Any) -> dict[str, bool]:
    """Return the command's options, and which of them take a value."""
    found = {
        name: not parameter.is_flag
        for parameter in command.params
        if hasattr(parameter, "is_flag")
        for name in parameter.opts
    }
    return found | {"--help": False, "-h": False}
