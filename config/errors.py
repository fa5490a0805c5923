"""The one tree of errors that a user can meet.

GpuctlError            what went wrong and what to do, in one line
├── InputError         the user's input is wrong (exit 2); nothing was created
│   └── InvalidFiles   cluster or run files with diagnostics, one line each
├── CloudError         AWS refused or failed; carries AWS's own code
├── InfraError         Pulumi's engine is missing, or failed on a resource
├── NodeError          a node cannot be reached, or is not what it should be
├── RunError           the run engine itself failed (a job that fails is a result, not an error)
├── LabError           the lab cannot start, or lacks a prerequisite
├── StateError         this machine cannot keep what gpuctl has to remember
└── Interrupted        the user pressed Ctrl-C; says what exists now (exit 130)
"""

from collections.abc import Iterable

from config.diagnostic import Diagnostic


class GpuctlError(Exception):
    """What went wrong, and the one thing to do about it."""

    exit_code = 1

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class InputError(GpuctlError):
    """The input is wrong; nothing was created."""

    exit_code = 2


class InvalidFiles(InputError):
    """Files that people wrote are wrong; `diagnostics` has every complaint, in file order."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(sorted(diagnostics))
        super().__init__("\n".join(str(d) for d in self.diagnostics), "")


class CloudError(GpuctlError):
    """AWS refused or failed; `code` is AWS's own (`InsufficientInstanceCapacity`)."""

    def __init__(self, message: str, hint: str, code: str = "") -> None:
        super().__init__(message, hint)
        self.code = code


class InfraError(GpuctlError):
    """Pulumi's engine is missing or failed on a resource.

    `resource` is Pulumi's name of it (`node2`), `code` AWS's own; empty where there is none.
    """

    def __init__(self, message: str, hint: str, code: str = "", resource: str = "") -> None:
        super().__init__(message, hint)
        self.code = code
        self.resource = resource


class NodeError(GpuctlError):
    """A node cannot be reached, or is not what it should be."""


class RunError(GpuctlError):
    """The run engine itself failed; a job that fails is a result, not an error."""


class LabError(GpuctlError):
    """The lab cannot start, or lacks a prerequisite."""


class StateError(GpuctlError):
    """A disk of this machine cannot keep what gpuctl has to remember."""


class Interrupted(GpuctlError):
    """The user pressed Ctrl-C; the message says what exists now."""

    exit_code = 130
