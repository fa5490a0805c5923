"""`gpuctl exec CLUSTER -- CMD` at the speed of its nodes: only what that takes is imported.

Whatever is not plain (options, a cluster that is not there, a lab that is down) is left to the
parser and to `cli.exec_`, which act alike and explain.
"""

import json
import os
import sys
from socket import socket

from cli.answers import said, shell_line, show
from cli.terminal import say
from nodes import dial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lab.places import Places


def run(arguments: list[str]) -> int | None:
    """The exit code, once the command has run; None where it is not for this module."""
    lab, rest = _lab(arguments)
    found = plain(rest)
    if found is None:
        return None
    name, command = found
    folder = _folder(lab, name)
    connection = _connection(folder, lab)
    if connection is None:
        return None
    try:
        return _show(dial.run_everywhere(connection, shell_line(command)))
    except (dial.BrokerLost, OSError):
        from nodes.answers import broker_lost

        return _fail(str(broker_lost(name, folder)))
    except KeyboardInterrupt:
        sys.stderr.write("gpuctl: interrupted; `gpuctl status` tells what exists\n")
        return 130


def _lab(arguments: list[str]) -> "tuple[Places | None, list[str]]":
    """The lab that the first options name, None where they name none; and what follows."""
    if not arguments[:1] or arguments[0] not in ("--lab", "--lab-name"):
        return None, arguments
    from config.errors import InputError
    from lab.places import DEFAULT, Places

    if arguments[0] == "--lab":
        return Places(DEFAULT), arguments[1:]
    try:
        return Places("".join(arguments[1:2])), arguments[2:]
    except InputError:
        return None, []


def _connection(folder: str, lab: "Places | None") -> socket | None:
    """A connection to the cluster's broker; None where anything is other than usual."""
    try:
        with open(f"{folder}/inventory.json", encoding="utf-8") as file:  # noqa: PTH123
            inventory = json.load(file)
        if inventory["proxy"] or not os.path.exists(f"{folder}/cluster.json"):  # noqa: PTH110
            return None
        found = dial.find(folder, inventory)
        if found is None and (lab is None or _is_up(lab)):
            found = dial.dial(folder, inventory)
    except (OSError, ValueError, KeyError):
        return None
    return found


def _show(answers: dial.Message) -> int:
    """Print each node's answer, or the one reason why none was asked."""
    for kind in ("unreachable", "error"):
        if kind in answers:
            return _fail("; ".join(answers[kind]))
    return show({name: said(answer) for name, answer in answers.items()})


def plain(arguments: list[str]) -> tuple[str, list[str]] | None:
    """Cluster and command of `exec CLUSTER [--] COMMAND…` without options."""
    if len(arguments) < 3 or arguments[0] != "exec" or arguments[1].startswith("-"):
        return None
    name, command = arguments[1], arguments[2:]
    if command[0] == "--":
        command = command[1:]
    elif any(word.startswith("-") for word in command):
        return None
    is_name = name and "/" not in name and name not in {".", ".."}
    return (name, command) if command and is_name else None


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
    say(f"gpuctl: error: {text}", sys.stderr)
    return 1
