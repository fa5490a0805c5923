"""The inputs of resources, compared with the classes of Pulumi's SDK for AWS.

The real provider refuses an unknown input or a wrong type; the lab's provider knows only the inputs
that the program has. The classes are generated from the real provider's schema, in the version
whose plugin the Pulumi engine requests.
"""

import threading
import typing
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from pulumi import _types as sdk

from lab.provider.values import UNKNOWN

_LOADING = threading.Lock()


def misfits(token: str, inputs: Mapping[str, Any]) -> list[str]:
    """Return what of the inputs does not fit the type `token` (`aws:ec2/vpc:Vpc`)."""
    args = args_class(token)
    return list(_of_class(args, inputs, token.rpartition(":")[2]))


def sdk_class(token: str) -> Any:
    """Return the SDK's class of a type."""
    _, place, name = token.split(":")
    # pulumi_aws's modules load themselves at their first use, and not safely in two threads.
    with _LOADING, warnings.catch_warnings():
        # pulumi_aws warns of its renamed classes even if nobody uses them.
        warnings.simplefilter("ignore", DeprecationWarning)
        return getattr(import_module(f"pulumi_aws.{place.partition('/')[0]}"), name)


def args_class(token: str) -> Any:
    """Return the SDK's class of the inputs of a type."""
    resource = sdk_class(token)
    return getattr(import_module(resource.__module__), f"{resource.__name__}Args")


def _of_class(args: type, inputs: Mapping[str, Any], where: str) -> Iterator[str]:
    types, names = sdk.input_type_types(args), sdk.input_type_py_to_pulumi_names(args)
    python = {pulumi: name for name, pulumi in names.items()}
    for name, value in inputs.items():
        place = f"{where}.{name}"
        if name not in types:
            yield f"{place}: {args.__name__} has no such input"
        elif _is_deprecated(args, python[name]):
            yield f"{place}: deprecated"
        else:
            yield from _of_type(types[name], value, place)
    for name, parameter in signature(args).parameters.items():
        if parameter.default is Parameter.empty and names[name] not in inputs:
            yield f"{where}.{names[name]}: required and missing"


def _is_deprecated(args: type, name: str) -> bool:
    return hasattr(getattr(args, name).fget, "_pulumi_deprecated_callable")


def _of_type(wanted: Any, value: Any, where: str) -> Iterator[str]:
    wanted = sdk.unwrap_type(wanted)
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if value == UNKNOWN:
        return
    if origin is typing.Union:
        found = [list(_of_type(part, value, where)) for part in parts]
        yield from min(found, key=len)
    elif isinstance(wanted, type) and sdk.is_input_type(wanted) and isinstance(value, Mapping):
        yield from _of_class(wanted, value, where)
    elif origin in (list, Sequence) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _of_type(parts[0], item, f"{where}[{index}]")
    elif origin in (dict, Mapping) and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _of_type(parts[1], item, f"{where}.{key}")
    elif not isinstance(wanted, type) or not _is_plain(wanted, value):
        yield f"{where}: {value!r} is no {getattr(wanted, '__name__', wanted)}"


def _is_plain(wanted: type, value: Any) -> bool:
    """Return whether a plain value has the type; JSON does not distinguish 1 from 1.0."""
    if wanted is int:
        return (
            not isinstance(value, bool) and isinstance(value, int | float) and value == int(value)
        )
    if wanted is float:
        return not isinstance(value, bool) and isinstance(value, int | float)
    return isinstance(value, wanted)
