"""The exit codes of `gpuctl`, besides those that a job or a remote command gives."""

from enum import IntEnum


class ExitCode(IntEnum):
    """An exit code of gpuctl's own: the table of docs/look-up/exit-codes.md."""

    DONE = 0
    FAILED = 1
    """AWS, a node or gpuctl failed, or what was checked is not fit."""
    INPUT = 2
    """The input is wrong; nothing was created or started."""
    DIFFERS = 3
    """`drift`: AWS differs from the last `up`."""
    TIMED_OUT = 124
    """`wait --timeout` is over; as timeout(1) has it."""
    OWN_FAILURE = 125
    """gpuctl failed and not the job, as `docker run` has it."""
    INTERRUPTED = 130
    """Ctrl-C ended the command: 128 and the signal's number, as shells have it."""
