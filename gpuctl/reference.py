"""The generated part of docs/look-up/python.md: every name of the API, from the code.

`python -m gpuctl.reference` writes it.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints, is_typeddict

from pydantic import BaseModel

from config.generated_page import GeneratedPage
from gpuctl import api, values

_WIDTH = 100
_TARGET = "**options: Unpack[TargetOptions]"
"""What nearly every function takes; the page says so once."""


def page() -> GeneratedPage:
    """Return the page."""
    return GeneratedPage("look-up/python.md", "gpuctl.reference", "\n".join(_reference()))


def _reference() -> Iterator[str]:
    names = {name: getattr(api, name) for name in api.__all__}
    functions = {name: each for name, each in names.items() if inspect.isfunction(each)}
    classes = [each for each in names.values() if inspect.isclass(each)]
    errors = [each for each in classes if issubclass(each, Exception)]
    objects = [each for each in classes if _methods(each) and each not in errors]
    options = [each for each in classes if is_typeddict(each)]
    yield "## Functions\n"
    for name, function in functions.items():
        yield from _function(f"gpuctl.{name}", function)
    for each in objects:
        yield f"## {each.__name__}\n\n{_text(each)}\n"
        methods = {} if each is api.LoggingWatcher else _methods(each)  # it has those of Watcher
        for name, method in methods.items():
            yield from _function(f"{each.__name__}.{name}", method)
    yield "## Options\n"
    hints = {each: get_type_hints(each) for each in options}
    for each, own in hints.items():
        parts = [part.__name__ for part in options if hints[part].items() < own.items()]
        yield from _value(each, {} if parts else own)
        if parts:
            yield f"These are all of {' and '.join(f'`{part}`' for part in parts)}.\n"
    yield "## Values\n\nWhat functions and methods return; `gpuctl.values` has these types.\n"
    for name in values.__all__:
        yield from _value(getattr(values, name), _fields(getattr(values, name)))
    yield "## Errors\n\n| error | meaning |\n| --- | --- |"
    for each in errors:
        yield f"| `{each.__name__}` ({each.__bases__[0].__name__}) | {_first_sentence(each)} |"
    yield ""


def _methods(owner: type) -> dict[str, Callable[..., Any]]:
    """Return the public methods that the class itself defines."""
    return {
        name: each
        for name, each in vars(owner).items()
        if inspect.isfunction(each) and not name.startswith("_")
    }


def _function(title: str, function: Callable[..., Any]) -> Iterator[str]:
    signature = inspect.signature(function)
    parameters = [
        parameter
        for name, each in signature.parameters.items()
        if name != "self" and (parameter := _short(str(each))) != _TARGET
    ]
    kinds = [each.kind for each in signature.parameters.values() if each.name != "self"]
    if inspect.Parameter.KEYWORD_ONLY in kinds:
        parameters.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    end = f") -> {_short(inspect.formatannotation(signature.return_annotation))}"
    name = function.__name__
    line = f"{name}({', '.join(parameters)}{end}"
    if len(line) > _WIDTH:
        inner = "".join(f"    {each},\n" for each in parameters)
        line = f"{name}(\n{inner}{end}"
    yield f"### {title}\n\n```python\n{line}\n```\n\n{_text(function)}\n"


def _value(value: type, fields: dict[str, Any]) -> Iterator[str]:
    yield f"### {value.__name__}\n\n{_text(value)}\n"
    if fields:
        yield "```python"
        for name, kind in fields.items():
            text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
            yield f"{name}: {_short(text)}"
        yield "```\n"


def _fields(value: type) -> dict[str, Any]:
    """Return the fields of a dataclass or a model, with their types, and its properties."""
    fields: dict[str, Any] = {}
    if dataclasses.is_dataclass(value):
        fields = {field.name: field.type for field in dataclasses.fields(value)}
    elif issubclass(value, BaseModel):
        hints = get_type_hints(value)  # without the bounds in `Annotated`
        fields = {name: hints[name] for name in value.model_fields}
    for name, each in vars(value).items():
        if isinstance(each, property) and not name.startswith("_"):
            fields[name] = inspect.signature(each.fget or property).return_annotation
    return fields


def _text(documented: object) -> str:
    """Return the docstring."""
    text = inspect.getdoc(documented)
    assert text, documented
    return text


def _first_sentence(documented: object) -> str:
    return re.split(r"(?<=[.;])\s", _text(documented).replace("\n", " "))[0].rstrip(";")


def _short(annotation: str) -> str:
    """Return the text of a signature without the modules of its types."""
    text = re.sub(r"<(?:class|function) '?([\w.]+).*?>", r"\1", annotation)
    text = re.sub(r"<operations\.watcher\.(\w+) object at \w+>", r"\1()", text)
    text = re.sub(r": \*(?:\w+\.)*(\w+)", r": Unpack[\1]", text)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(\w+)", r"\1", text)


if __name__ == "__main__":
    page().write()
