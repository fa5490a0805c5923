"""Dataclasses of the contract as JSON data and back, by the types of their fields.

Fields are of these types: str, int, float, bool, None, Literal, Any, tuples of any length, dicts
with str as keys, other dataclasses, and Optional of these. `Annotated` bounds are for the client,
which checks what it reads with pydantic (config/foreign.py).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

Decoder = Callable[[Any], Any]


class DecodeError(ValueError):
    """The error that JSON data is not what a class of the contract has; it names the field."""


def to_json(value: Any) -> Any:
    """Return the value as JSON data: dicts, lists, texts, numbers, bools and None.

    Fields are in the order of their class.
    """
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    fields = dataclasses.fields(value)
    return {field.name: to_json(getattr(value, field.name)) for field in fields}


def from_json(cls: type[T], data: Any) -> T:
    """Return the value of this class that the JSON data has; unknown keys are ignored.

    Raises DecodeError if a field is missing or has another type.
    """
    kind: Any = cls
    value: T = _decoder(kind)(data)
    return value


def map_texts(value: T, change: Callable[[str], str]) -> T:
    """Return the value with each text in it changed, but not the keys of its dicts."""
    result: Any = value
    if isinstance(value, str):
        result = change(value)
    elif isinstance(value, dict):
        result = {key: map_texts(item, change) for key, item in value.items()}
    elif isinstance(value, tuple):
        result = tuple(map_texts(item, change) for item in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        changed = {name: map_texts(getattr(value, name), change) for name in fields}
        result = dataclasses.replace(value, **changed)
    return cast(T, result)


@functools.cache
def _decoder(kind: Any) -> Decoder:
    """Return the function that makes a value of this type from JSON data."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda data: data
    if type(None) in arguments:
        return _optional_decoder(arguments)
    if origin is Literal:
        return functools.partial(_decode_literal, arguments)
    if origin is tuple:
        return functools.partial(_decode_tuple, arguments[0])
    if origin is dict:
        return functools.partial(_decode_dict, arguments[1])
    if dataclasses.is_dataclass(kind):
        return _object_decoder(kind)
    return functools.partial(_decode_plain, kind)


def _optional_decoder(arguments: tuple[Any, ...]) -> Decoder:
    (inner,) = (argument for argument in arguments if argument is not type(None))
    return lambda data: None if data is None else _decoder(inner)(data)


def _decode_literal(allowed: tuple[Any, ...], data: Any) -> Any:
    if data not in allowed:
        raise DecodeError(f"is none of {', '.join(map(str, allowed))}")
    return data


def _decode_tuple(item: Any, data: Any) -> tuple[Any, ...]:
    if not isinstance(data, (list, tuple)):
        raise DecodeError("is no list")
    return tuple(map(_decoder(item), data))


def _decode_dict(item: Any, data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise DecodeError("is no object")
    decode = _decoder(item)
    return {key: decode(value) for key, value in data.items()}


def _decode_plain(kind: type[Any], data: Any) -> Any:
    if type(data) is kind:
        return data
    if kind is float and type(data) is int:
        return float(data)
    raise DecodeError(f"is no {kind.__name__}")


def _decode_field(cls: Any, name: str, decode: Decoder, data: Any) -> Any:
    try:
        return decode(data)
    except DecodeError as error:
        raise DecodeError(f"{cls.__name__}.{name} {error}") from None


def _object_decoder(cls: Any) -> Decoder:
    # `Annotated` is stripped: without `include_extras` the types are the plain ones.
    types = get_type_hints(cls)
    fields = [
        (field.name, types[field.name], _decoder(types[field.name]), _is_required(field))
        for field in dataclasses.fields(cls)
    ]

    def decode(data: Any) -> Any:
        if not isinstance(data, dict):
            raise DecodeError(f"{cls.__name__} is no object")
        values = {}
        for name, kind, decode_field, is_required in fields:
            if name in data:
                value = data[name]
                if type(value) is not kind:  # most are plain: events of output must take no time
                    value = _decode_field(cls, name, decode_field, value)
                values[name] = value
            elif is_required:
                raise DecodeError(f"{cls.__name__}.{name} is missing")
        return cls(**values)

    return decode


def _is_required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing
