"""Which request AWS refuses, and the code with which each of its protocols does."""

from dataclasses import dataclass

from lab.requests import ec2_rules, model_rules
from lab.requests.model_rules import Problem
from lab.requests.wire import Request

_EC2 = {
    "missing": "MissingParameter",
    "unknown": "UnknownParameter",
    "type": "InvalidParameterValue",
    "value": "InvalidParameterValue",
    "combination": "InvalidParameterCombination",
}
"""https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html, 2026-11-23. The text
of UnknownParameter is EC2's (https://github.com/soto-project/soto/issues/291)."""


@dataclass(frozen=True)
class Refused:
    """The code and the text with which AWS refuses a request."""

    code: str
    text: str


def refusal(request: Request) -> Refused | None:
    """Return the refusal of a request that breaks a rule; None if it breaks none.

    EC2's rules of combinations are only checked where the model's are kept.
    """
    problem = next(model_rules.problems(request), None)
    if problem is None and request.service == "ec2":
        problem = next(ec2_rules.problems(request), None)
    return None if problem is None else Refused(_code(request, problem), problem.text)


def _code(request: Request, problem: Problem) -> str:
    """Return the error's code in the request's service.

    IAM and STS: ValidationError (https://docs.aws.amazon.com/IAM/latest/APIReference/CommonErrors.html).
    EFS and FSx declare BadRequest with their operations; other JSON services have
    ValidationException in common, and SerializationException for a value of a wrong type
    (https://docs.aws.amazon.com/systems-manager/latest/APIReference/CommonErrors.html). 2026-11-23.
    """
    if request.service == "ec2":
        return problem.code or _EC2[problem.kind]
    if request.service in ("iam", "sts"):
        return "ValidationError"
    if "BadRequest" in {shape.name for shape in request.operation.error_shapes}:
        return "BadRequest"
    return "SerializationException" if problem.kind == "type" else "ValidationException"
