"""Become OpenSSH: a shell on a node has the terminal as if gpuctl were not there."""

import os
from typing import NoReturn

from config.errors import InputError


def become(words: list[str]) -> NoReturn:
    """Replace this process by the command of OpenSSH; raise InputError if it is not installed."""
    try:
        os.execvp(words[0], words)  # noqa: S606  a list of arguments, no shell line
    except FileNotFoundError:
        raise InputError(
            "the program `ssh` is not installed", "apt-get install -y openssh-client"
        ) from None
