"""Requests to AWS's APIs, parsed from their wire form back into boto3's parameters.

The wire forms are those of AWS's protocols as botocore writes them: `ec2`, `query`, `json` and
`rest-json`. In the first two, no service of the lab has maps or flattened lists. A name that the
operation does not have is kept, and a value of the wrong type stays text, so that
`lab.requests.model_rules` can report both.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote

from moto.core.utils import get_service_model

NAMES = {"elasticfilesystem": "efs", "servicequotas": "service-quotas"}
"""boto3's names of services that sign requests with another name."""


@dataclass(frozen=True)
class Request:
    """A request to an operation of a service, by boto3's names; `operation` is botocore's model."""

    service: str
    operation: Any
    parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The operation's name (`RunInstances`)."""
        return str(self.operation.name)


def parse(signed_for: str, environ: Mapping[str, Any], body: bytes) -> Request | None:
    """Return the request of a WSGI environment; None if the service has no such operation."""
    service = NAMES.get(signed_for, signed_for)
    model = get_service_model(service)
    if model.protocol == "rest-json":
        return _rest(service, environ, body)
    sent: Any
    convert = _CONVERSIONS[model.protocol]
    if model.protocol == "json":
        name = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        sent = _loaded(body)
    else:
        sent = _tree(body)
        name = sent.pop("Action", _Node()).text
        sent.pop("Version", None)
    if name not in model.operation_names:
        return None
    operation = model.operation_model(name)
    shape = operation.input_shape
    return Request(service, operation, {} if shape is None else convert(shape, sent))


# ec2 and query: a form with paths as names


class _Node(dict[str, "_Node"]):
    """The values of a form below one name; `text` is the value of the name itself."""

    text: str | None = None

    def plain(self) -> Any:
        """Return the values without a shape."""
        return {name: below.plain() for name, below in self.items()} if self else self.text


def _tree(body: bytes) -> _Node:
    root = _Node()
    for path, text in parse_qsl(body.decode(errors="replace"), keep_blank_values=True):
        node = root
        for step in path.split("."):
            node = node.setdefault(step, _Node())
        node.text = text
    return root


def _from_ec2(shape: Any, node: _Node) -> Any:
    if shape.type_name == "structure":
        return _members(_from_ec2, _ec2_names(shape), node)
    if shape.type_name == "list":
        return _items(_from_ec2, shape, node)
    return _from_text(shape, node)


def _from_query(shape: Any, node: _Node) -> Any:
    if shape.type_name == "structure":
        return _members(_from_query, _names(shape), node)
    if shape.type_name == "list":
        inner = shape.member.serialization.get("name", "member")
        return _items(_from_query, shape, node.get(inner, node))
    return _from_text(shape, node)


def _members(
    convert: Callable[[Any, Any], Any], known: Mapping[str, tuple[str, Any]], node: _Node
) -> dict[str, Any]:
    members = {}
    for wire_name, below in node.items():
        if wire_name in known:
            name, shape = known[wire_name]
            members[name] = convert(shape, below)
        else:
            members[wire_name] = below.plain()
    return members


def _items(convert: Callable[[Any, Any], Any], shape: Any, node: _Node) -> Any:
    if not node and node.text == "":
        return []  # the query protocol's empty list
    if not node or not all(place.isdecimal() for place in node):
        return node.plain()
    return [convert(shape.member, node[place]) for place in sorted(node, key=int)]


@cache
def _names(shape: Any) -> dict[str, tuple[str, Any]]:
    """Return a structure's members by their names on the wire."""
    named = shape.members.items()
    return {member.serialization.get("name", name): (name, member) for name, member in named}


@cache
def _ec2_names(shape: Any) -> dict[str, tuple[str, Any]]:
    """Return a structure's members by their names on the wire, which EC2 capitalizes."""
    return {
        member.serialization.get("queryName", wire[0].upper() + wire[1:]): (name, member)
        for wire, (name, member) in _names(shape).items()
    }


def _from_text(shape: Any, node: _Node) -> Any:
    text = node.text
    if node or text is None:
        return node.plain()
    kind = shape.type_name
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    if kind in ("integer", "long") and re.fullmatch(r"-?\d+", text):
        return int(text)
    if kind == "timestamp":
        return _moment(text)
    return _typed(kind, text)


# json and rest-json: a document


def _loaded(body: bytes) -> dict[str, Any]:
    """Return the document's object; an empty one for anything else, which the service refuses."""
    try:
        document = json.loads(body or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _from_json(shape: Any, value: Any) -> Any:
    kind = shape.type_name
    if kind == "structure" and isinstance(value, dict):
        known = _names(shape)
        given = ((known.get(wire, (wire, None)), below) for wire, below in value.items())
        return {
            name: below if member is None else _from_json(member, below)
            for (name, member), below in given
        }
    if kind == "list" and isinstance(value, list):
        return [_from_json(shape.member, item) for item in value]
    if kind == "map" and isinstance(value, dict):
        return {key: _from_json(shape.value, item) for key, item in value.items()}
    if kind == "timestamp" and isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC)
    return _typed(kind, value) if isinstance(value, str) else value


def _rest(service: str, environ: Mapping[str, Any], body: bytes) -> Request | None:
    """Return the request to the operation whose method and path are these."""
    path = environ.get("REQUEST_URI", "").partition("?")[0]
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    for pattern, operation in _routes(service, environ.get("REQUEST_METHOD", "")):
        if match := pattern.fullmatch(path):
            shape = operation.input_shape
            in_path = {name: unquote(value) for name, value in match.groupdict().items()}
            placed = dict(_placed(shape, in_path, query))
            return Request(service, operation, {**_from_json(shape, _loaded(body)), **placed})
    return None


def _placed(
    shape: Any, in_path: Mapping[str, str], query: Mapping[str, list[str]]
) -> Iterator[tuple[str, Any]]:
    """Yield the parameters in path and query string; no operation of the lab has any in headers."""
    known = _names(shape)
    for wire, text in in_path.items():
        yield known[wire][0], text
    for wire, texts in query.items():
        name, member = known.get(wire, (wire, None))
        if member is not None and member.type_name == "list":
            yield name, texts
        else:
            node = _Node()
            node.text = texts[0]
            yield name, texts[0] if member is None else _from_text(member, node)


@cache
def _routes(service: str, method: str) -> list[tuple[re.Pattern[str], Any]]:
    model = get_service_model(service)
    operations = [model.operation_model(name) for name in model.operation_names]
    return [
        (
            re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", operation.http["requestUri"])),
            operation,
        )
        for operation in operations
        if operation.http["method"] == method
    ]


# values of both


def _typed(kind: str, text: str) -> Any:
    """Return the value of a blob or number in a text; the text itself if it is none."""
    try:
        if kind == "blob":
            return base64.b64decode(text, validate=True)
        return float(text) if kind in ("float", "double") else text
    except (binascii.Error, ValueError):
        return text


def _moment(text: str) -> Any:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_CONVERSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "ec2": _from_ec2,
    "query": _from_query,
    "json": _from_json,
}
