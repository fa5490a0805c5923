"""The one tree of errors that a user can see.

GpuctlError            a mistake or failure and its remedy, in one line
├── InputError         the user's input is wrong (exit 2); nothing was created
│   └── InvalidFiles   cluster or run files with diagnostics, one line each
├── CloudError         AWS refused or failed; carries AWS's own code
├── InfraError         the Pulumi engine is missing, or failed on a resource
├── NodeError          a node cannot be reached, or is not as required
│   └── BrokenNodes    machines did not become fit nodes; has the cause of each
├── RunError           the run engine itself failed (a job that fails is a result, not an error)
├── LabError           the lab cannot start, or lacks a prerequisite
├── StateError         this machine cannot store or read gpuctl's records
├── OutputError        stdout or stderr cannot be written
└── Interrupted        the user pressed Ctrl-C; says what exists now (exit 130)

`ExitCode` has the exit codes of `gpuctl`, besides those that a job or a remote command gives.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Self

from config.diagnostic import Diagnostic


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


class GpuctlError(Exception):
    """An error for the user: `message` names the mistake, `hint` the remedy."""

    exit_code: int = ExitCode.FAILED

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def with_hint(self, hint: str) -> Self:
        """Return the same error with this hint."""
        error = type(self).__new__(type(self), *self.args)
        vars(error).update(vars(self), hint=hint)
        return error

    def with_added_hint(self, hint: str, separator: str = "; ") -> Self:
        """Return the same error with `hint` behind its own hint, if it has one."""
        return self.with_hint(f"{self.hint}{separator}{hint}" if self.hint else hint)


class InputError(GpuctlError):
    """The error that the user's input is wrong; nothing was created."""

    exit_code = ExitCode.INPUT


class InvalidFiles(InputError):
    """The error that files are invalid; `diagnostics` has every diagnostic, in file order."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(sorted(diagnostics))
        super().__init__("\n".join(str(d) for d in self.diagnostics), "")


class CloudError(GpuctlError):
    """The error that AWS refused or failed; `code` is AWS's (`InsufficientInstanceCapacity`)."""

    def __init__(self, message: str, hint: str, code: str = "") -> None:
        super().__init__(message, hint)
        self.code = code


class InfraError(GpuctlError):
    """The error that the Pulumi engine is missing, or failed on a resource.

    `resource` is Pulumi's name for it (`node2`), `code` is AWS's; each is empty if unknown.
    """

    def __init__(self, message: str, hint: str, code: str = "", resource: str = "") -> None:
        super().__init__(message, hint)
        self.code = code
        self.resource = resource


class NodeError(GpuctlError):
    """The error that a node cannot be reached, or is not as required."""


class BrokenNodes(NodeError):
    """The error that machines did not become fit nodes: `causes` maps each one's name to why."""

    def __init__(self, message: str, hint: str, causes: Mapping[str, str]) -> None:
        super().__init__(message, hint)
        self.causes = dict(causes)


class RunError(GpuctlError):
    """The error that the run engine itself failed; a job that fails is a result, not an error."""


class LabError(GpuctlError):
    """The error that the lab cannot start, or lacks a prerequisite."""


class StateError(GpuctlError):
    """The error that a disk of this machine cannot store gpuctl's records, or gives no access."""


class OutputError(GpuctlError):
    """The error that stdout or stderr cannot be written, for another reason than a closed pipe."""


class Interrupted(GpuctlError):
    """The error that the user pressed Ctrl-C; the message says what exists now."""

    exit_code = ExitCode.INTERRUPTED
