"""`gpuctl exec CLUSTER -- CMD` at the speed of its nodes: only what that takes is imported.

The parser and `cli.commands.exec_` handle every other case: further options, an unknown cluster, a
lab that is down. They do the same, and explain errors.
"""

import json
import os
from socket import socket

from cli.output import Output
from cli.render.exec_output import node_answer, shell_line, show
from cli.terminal import discard_unwritten
from cli.words import named_lab, own_words
from nodes import dial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lab.places import Places

_OPTIONS = {"--lab": False, "--lab-name": True}
"""The options that this form takes, and whether a value follows."""

_OUT = Output()


def run(arguments: list[str]) -> int | None:
    """Run the command; return its exit code, or None where this module cannot run it."""
    found = plain(arguments)
    if found is None:
        return None
    options, name, command = found
    try:
        _read_settings()
        lab = _lab(options)
    except ValueError:  # the parser's command explains
        return None
    folder = _folder(lab, name)
    connection = _connection(folder, lab)
    if connection is None:
        return None
    try:
        answers = dial.run_everywhere(connection, shell_line(command))
    except (dial.BrokerLost, OSError):
        from nodes.answers import broker_lost

        return _fail(str(broker_lost(name, folder)))
    except KeyboardInterrupt:
        _OUT.complain("gpuctl: interrupted; `gpuctl status` shows what exists")
        return 130
    return _print(answers)


def _print(answers: dial.Message) -> int:
    """Print the answers and return the exit code; 1 if nobody reads them, or they have no room."""
    from config.errors import OutputError

    try:
        return _show(answers)
    except (BrokenPipeError, OutputError) as error:
        discard_unwritten()
        return 1 if isinstance(error, BrokenPipeError) else _fail(str(error))


def _read_settings() -> None:
    """Take the folder for state from the user's settings; ValueError if they are wrong."""
    from config.errors import GpuctlError
    from config.folders import config_home

    try:
        if not (config_home() / "config.yaml").exists():
            return
        from config.settings import export_state

        export_state()
    except (GpuctlError, OSError) as error:
        raise ValueError from error


def _lab(options: list[str]) -> "Places | None":
    """Return the lab that the options name, None for AWS; ValueError for a name of no lab."""
    if not options:
        return None
    from config.errors import InputError
    from lab.places import DEFAULT, Places

    names = [word.partition("=")[2] for word in options if word != "--lab"]
    try:
        return Places((names or [DEFAULT])[-1])
    except InputError as error:
        raise ValueError from error


def _connection(folder: str, lab: "Places | None") -> socket | None:
    """Return a connection to the cluster's broker; None where anything is unusual."""
    try:
        if os.path.exists(f"{folder}/shared"):  # noqa: PTH110
            return None  # somebody else may have changed the cluster
        with open(f"{folder}/inventory.json", encoding="utf-8") as file:  # noqa: PTH123
            inventory = json.load(file)
        inventory["folder"] = folder  # the cluster may have been made on another machine
        if inventory["proxy"] or not os.path.exists(f"{folder}/cluster.json"):  # noqa: PTH110
            return None
        found = dial.find(folder, inventory)
        if found is None and (lab is None or _is_up(lab)):
            found = dial.dial(folder, inventory)
    except (OSError, ValueError, KeyError):
        return None
    return found


def _show(answers: dial.Message) -> int:
    """Print each node's answer, or the reason why no node was asked."""
    for kind in ("unreachable", "error"):
        if kind in answers:
            return _fail("; ".join(answers[kind]))
    return show({name: node_answer(answer) for name, answer in answers.items()}, _OUT)


def plain(arguments: list[str]) -> tuple[list[str], str, list[str]] | None:
    """Return the lab's options, cluster and command of `exec CLUSTER [--] COMMAND…`.

    None for a line that has other options in front of the command, or is no such line.
    """
    before = own_words(arguments, _OPTIONS, 0)
    if arguments[before : before + 1] != ["exec"]:
        return None
    behind = arguments[before + 1 :]
    end = own_words(behind, _OPTIONS, 1)
    command = behind[end:]
    if command[:1] == ["--"]:
        command = command[1:]
    elif command and command[0].startswith("-"):  # an option that the parser may know
        return None
    options, names = _sorted([*arguments[:before], *behind[:end]])
    is_name = len(names) == 1 and "/" not in names[0] and names[0] not in {"", ".", ".."}
    return (options, names[0], command) if command and is_name else None


def _sorted(words: list[str]) -> tuple[list[str], list[str]]:
    """Return options, each with its value behind `=`, and the other words."""
    options, others = list[str](), list[str]()
    rest = iter(words)
    for word in rest:
        if word == "--lab-name":
            options.append(f"{word}={next(rest, '')}")
        else:
            (options if word.startswith("--lab") else others).append(named_lab(word))
    return options, others


def _folder(lab: "Places | None", name: str) -> str:
    from config.folders import state_home

    return str((lab.state if lab else state_home() / "aws") / "clusters" / name)


def _is_up(lab: "Places") -> bool:
    from config.errors import LabError
    from lab.state import record

    try:
        return record(lab) is not None
    except LabError:  # the parser's command explains
        return False


def _fail(text: str) -> int:
    _OUT.complain(f"gpuctl: error: {text}")
    return 1
