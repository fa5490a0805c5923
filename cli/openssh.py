"""Become OpenSSH: a shell on a node has the terminal as if gpuctl were not there."""

import os
from collections.abc import Sequence
from typing import NoReturn

from config.errors import InputError


def become(words: Sequence[str]) -> NoReturn:
    """Replace this process by the command of OpenSSH; raise InputError if it is not installed."""
    try:
        os.execvp(words[0], list(words))  # noqa: S606  the words are an argument list, no shell line
    except FileNotFoundError:
        raise InputError(
            "the program `ssh` is not installed", "apt-get install -y openssh-client"
        ) from None
