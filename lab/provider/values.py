"""Conversion of values between Pulumi's wire format and Python."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format, struct_pb2

Properties = dict[str, Any]
"""A resource's properties by Pulumi's names (`cidrBlock`)."""

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The placeholder for a value that is known only after the update.

Source: github.com/pulumi/pulumi, sdk/go/common/resource/plugin/rpc.go, UnknownStringValue."""


def from_struct(struct: struct_pb2.Struct) -> Properties:
    """Return the properties in `struct`; whole numbers are ints, unknown values are UNKNOWN."""
    return {key: _whole(value) for key, value in json_format.MessageToDict(struct).items()}


def to_struct(properties: Mapping[str, Any]) -> struct_pb2.Struct:
    """Return `properties` in the wire format, without those that are None."""
    struct = struct_pb2.Struct()
    struct.update({key: value for key, value in properties.items() if value is not None})
    return struct


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def is_unknown(value: Any) -> bool:
    """Return whether some part of `value` is known only after the update."""
    if isinstance(value, dict):
        return any(is_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(is_unknown(item) for item in value)
    return bool(value == UNKNOWN)
