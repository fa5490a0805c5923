"""The command as `python -m gpuctl`, and by this file's path, with which ssh starts it."""

import os
import sys

if not __package__:  # by its path: the rooms are next to this file's folder
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120

from gpuctl.entry import main

main()
