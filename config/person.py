"""The person who calls gpuctl."""

import getpass
import os
import socket


def this_person() -> str:
    """Return who calls gpuctl on this machine, as `USER@MACHINE`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # nobody has this user id, as in some containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
