"""A mark in front of the output of a command on a node, after the greeting of its shell.

sshd gives a command to the login shell of the node's user, and bash then reads ~/.bashrc: on many
machines that prints a greeting, or an error. Nothing before the mark is the command's. A shell that
ends in its start-up files prints no mark: then everything is kept, because it has the reason.
"""

MARK = "gpuctl-command-begins"
"""A line of both streams in front of the command's own."""

MOST_NOISE = 1 << 20
"""Bytes that a shell may print before the mark."""


def mark(command: str) -> str:
    """Return the command for a login shell, with the mark; traps of ~/.bashrc print nothing.

    bash that sshd has called reads ~/.bashrc up to level 1. The last command of a shell takes the
    shell's place and level, so a `bash -c` there would read it too (run_startup_files in shell.c
    and adjust_shell_level in variables.c of bash 5.2, tried 2026-11-26).
    """
    return f"trap - 0; export SHLVL=3; echo {MARK}; echo {MARK} >&2\n{command}"


def after_mark(text: str) -> str:
    """Return what the command printed, of one stream's whole text."""
    before, mark, after = text.partition(f"{MARK}\n")
    return after if mark else before
