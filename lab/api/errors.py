"""EC2's error responses: the codes and texts that AWS sends.

Codes are AWS's ("Error codes for the Amazon EC2 API", read 2026-11-20). Texts are AWS's where they
are public; where AWS publishes none, the text says what is wrong.
"""

from moto.ec2.exceptions import EC2ClientError


class Refusal(EC2ClientError):  # type: ignore[misc]  # moto is untyped here
    """An error response of EC2: HTTP 400 with `code` and `message`."""

    status = 400

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)


class ServerFault(Refusal):
    """A failure on EC2's side: HTTP 500, so that clients retry as they do on AWS."""

    status = 500


class DryRun(Refusal):
    """The answer to a request with DryRun whose action the credentials allow: HTTP 412.

    moto creates some kinds of resources despite DryRun. Source: DryRun of CreateVpc and
    others in botocore's model of EC2, read 2026-11-23; the text is moto's, the status from memory.
    """

    status = 412

    def __init__(self) -> None:
        super().__init__("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")


def bad_value(message: str) -> Refusal:
    """Return an InvalidParameterValue."""
    return Refusal("InvalidParameterValue", message)


def bad_combination(message: str) -> Refusal:
    """Return an InvalidParameterCombination."""
    return Refusal("InvalidParameterCombination", message)


def unsupported(message: str) -> Refusal:
    """Return an UnsupportedOperation: AWS supports the operation, the lab does not."""
    return Refusal("UnsupportedOperation", message)


def in_use(message: str) -> Refusal:
    """Return a DependencyViolation: another resource still needs this one."""
    return Refusal("DependencyViolation", message)
