"""The command `gpuctl`: the installed script calls `main`."""

from gpuctl.entry import main

__all__ = ["main"]
