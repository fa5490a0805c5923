"""IAM policy documents, and their decision about one action on one resource.

The elements and operators that gpuctl's policies have; any other is refused when the document is
read, so that none is silently ignored. Rules: "IAM JSON policy elements reference" and "Policy
evaluation logic", IAM User Guide (read 2026-11-23 and, for permissions boundaries, 2026-11-26:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic_policy-eval-denyallow.html).
moto has neither Resource nor Condition (docs/develop/lab-api.md).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from config.errors import InputError

Decision = Literal["allowed", "explicitDeny", "implicitDeny"]
"""IAM's words for the outcome of a simulation (PolicyEvaluationDecisionType)."""

Context = Mapping[str, str]
"""The values of condition keys; a key that the request does not have is missing."""

_STATEMENT = frozenset({"Sid", "Effect", "Action", "Resource", "Condition"})
_VARIABLE = re.compile(r"\$\{([^}]+)\}")
_OPERATORS = ("StringEquals", "StringLike", "ArnEquals", "ArnLike", "Null")


@dataclass(frozen=True)
class Statement:
    """A statement; the patterns are IAM's, with * and ?."""

    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[tuple[str, str, tuple[str, ...]], ...]

    def matches(self, action: str, resource: str, context: Context) -> bool:
        """Return whether the statement is about this request."""
        return (
            any(_like(pattern.lower(), action.lower()) for pattern in self.actions)
            and any(_like(_filled(pattern, context), resource) for pattern in self.resources)
            and all(_holds(*condition, context) for condition in self.conditions)
        )


@dataclass(frozen=True)
class Policy:
    """The statements of all documents of an identity."""

    statements: tuple[Statement, ...]

    def decide(self, action: str, resource: str, context: Context) -> Decision:
        """Return IAM's decision: a Deny overrides every Allow, and nothing is allowed by itself."""
        effects = {
            statement.effect
            for statement in self.statements
            if statement.matches(action, resource, context)
        }
        if "Deny" in effects:
            return "explicitDeny"
        return "allowed" if "Allow" in effects else "implicitDeny"


@dataclass(frozen=True)
class Ruling:
    """A decision, and whether the permissions boundary made it: `bounded`, if there is one."""

    decision: Decision
    bounded: bool = False


def decide(
    policy: Policy, boundary: Policy | None, action: str, resource: str, context: Context
) -> Ruling:
    """Return IAM's decision for an identity with a permissions boundary, if it has one.

    A Deny in either one overrides every Allow. Otherwise both must allow the action: a boundary
    grants nothing, and limits what the identity's policies grant.
    """
    decision = policy.decide(action, resource, context)
    limit = boundary.decide(action, resource, context) if boundary else "allowed"
    if decision == "explicitDeny" or limit == "allowed":
        return Ruling(decision)
    if limit == "explicitDeny" or decision == "allowed":
        return Ruling(limit, bounded=True)
    return Ruling(decision)


def read_policy(text: str) -> Policy:
    """Return the policy of a JSON text: a document, or a list of them; InputError if it is none."""
    try:
        content = json.loads(text)
        documents = content if isinstance(content, list) else [content]
        return Policy(
            tuple(_statement(statement) for each in documents for statement in each["Statement"])
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"this is no IAM policy that the lab can enforce: {error}",
            "`gpuctl iam-policy` prints one",
        ) from None


def _statement(given: Mapping[str, Any]) -> Statement:
    if unknown := sorted(given.keys() - _STATEMENT):
        raise ValueError(f"statements with {unknown[0]} are not supported")
    conditions = [
        (operator, key, _listed(values))
        for operator, keys in given.get("Condition", {}).items()
        for key, values in keys.items()
    ]
    if unknown := sorted({operator for operator, _, _ in conditions} - {*_OPERATORS}):
        raise ValueError(f"the operator {unknown[0]} is not supported")
    if given["Effect"] not in ("Allow", "Deny"):
        raise ValueError(f"Effect is {given['Effect']!r}")
    return Statement(
        given["Effect"], _listed(given["Action"]), _listed(given["Resource"]), tuple(conditions)
    )


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def _holds(operator: str, key: str, patterns: tuple[str, ...], context: Context) -> bool:
    # Names of condition keys do not distinguish case; the key of a tag within them may.
    actual = next((value for name, value in context.items() if name.lower() == key.lower()), None)
    if operator == "Null":
        return str(actual is None).lower() in patterns
    if actual is None:
        return False
    patterns = tuple(_filled(pattern, context) for pattern in patterns)
    if operator == "StringEquals":
        return actual in patterns
    if operator in ("ArnEquals", "ArnLike"):  # two names of one comparison
        return any(_like_arn(pattern, actual) for pattern in patterns)
    return any(_like(pattern, actual) for pattern in patterns)


def _filled(pattern: str, context: Context) -> str:
    """Return the pattern with the values of its policy variables, such as `${aws:userid}`.

    With a variable that the request does not have the pattern matches nothing ("IAM policy
    elements: Variables and tags", IAM User Guide, 2026-11-26).
    """
    return _VARIABLE.sub(lambda match: context.get(match[1], "\0"), pattern)


def _like_arn(pattern: str, arn: str) -> bool:
    """Compare the six parts of an ARN one by one: a wildcard does not reach into the next part."""
    patterns, parts = pattern.split(":", 5), arn.split(":", 5)
    return len(patterns) == len(parts) == 6 and all(map(_like, patterns, parts))


def _like(pattern: str, text: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in pattern)
    return re.compile("".join(parts), re.DOTALL)
