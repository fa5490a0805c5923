"""EC2's refusals: the code and the text that AWS answers with.

Codes are AWS's ("Error codes for the Amazon EC2 API", read 2026-11-20). Texts are AWS's where they
are public; where AWS publishes none, the text says what is wrong.
"""

from moto.ec2.exceptions import EC2ClientError


class Refusal(EC2ClientError):  # type: ignore[misc]  # moto is untyped here
    """EC2 refuses the request: HTTP 400, `code` and `message`."""

    status = 400

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)


class ServerFault(Refusal):
    """EC2 cannot do it now: HTTP 500, so that clients retry as they do on AWS."""

    status = 500


def bad_value(message: str) -> Refusal:
    """InvalidParameterValue."""
    return Refusal("InvalidParameterValue", message)


def bad_combination(message: str) -> Refusal:
    """InvalidParameterCombination."""
    return Refusal("InvalidParameterCombination", message)


def unsupported(message: str) -> Refusal:
    """UnsupportedOperation: AWS has it, the lab does not."""
    return Refusal("UnsupportedOperation", message)


def in_use(message: str) -> Refusal:
    """DependencyViolation: something else still needs it."""
    return Refusal("DependencyViolation", message)
