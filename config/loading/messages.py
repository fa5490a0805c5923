"""gpuctl's messages for pydantic's errors: the mistake, the allowed values, the remedy.

There is one function per type of error that the models can raise, in `_TRANSLATIONS`; pydantic's
own text never reaches a user. The functions get the model, the document and one error, and do not
know lines.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import replace as changed
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from config.cluster import cluster_file, hosts_file
from config.loading.formats import formats
from config.mistakes import MOST_MISTAKES, REFUSED, Mistake, Path, path_text
from config.models import MAPPING, SCALAR
from config.run import run_file
from config.run.env import Secret
from config.yaml.hints import choice_hint, describe_value, names_hint, quote
from config.yaml.marked_yaml import Document

_KEY = "[key]"  # pydantic puts it after the key in `loc` if the key itself is wrong
_FORMS = cluster_file.FORMS | hosts_file.FORMS | run_file.FORMS


def translate_errors(
    error: ValidationError, model: type[BaseModel], document: Document
) -> Iterator[Mistake]:
    """Yield a mistake for every error of pydantic about `document` as a `model`, at its path."""
    errors = error.errors()
    for details in errors[:MOST_MISTAKES]:
        # The branch of a union that pydantic took is not part of the file's path.
        at = tuple(part for part in details["loc"] if part not in (SCALAR, MAPPING))
        on_key = at[-1:] == (_KEY,)
        at = at[:-1] if on_key else at
        place = _Place(model, document, at, on_key, details)
        yield from _TRANSLATIONS[details["type"]](place)
    if more := errors[MOST_MISTAKES:]:
        yield Mistake("E108", f"{len(more)} more mistakes are not listed", "correct these first")


@dataclass(frozen=True)
class _Place:
    """One of pydantic's errors and its place in the file."""

    model: type[BaseModel]
    document: Document
    at: Path
    on_key: bool
    details: ErrorDetails

    @property
    def name(self) -> str:
        return f"'{path_text(self.at)}'"

    @property
    def actual(self) -> str:
        """The value as a person would write it, or `***` if it may be a secret by mistake."""
        field = _field_at(self.model, self.at)
        kinds = _branches(field.annotation) if field else ()
        if Secret in kinds or _model_at(self.model, self.at[:-1]) is Secret:
            return "***"
        return describe_value(self.details["input"], self.document.text_at(self.at))

    @property
    def context(self) -> dict[str, Any]:
        return self.details.get("ctx", {})

    def mistake(self, code: str, message: str, hint: str) -> Iterator[Mistake]:
        yield Mistake(code, message, hint, self.at, self.on_key)


def _unknown(place: _Place) -> Iterator[Mistake]:
    allowed = tuple(_model_at(place.model, place.at[:-1]).model_fields)
    key = str(place.at[-1])
    hint = names_hint(key, allowed)
    others = [name for name, model in run_file.RUN_TYPES.items() if key in model.model_fields]
    is_of_run = place.model in run_file.RUN_TYPES.values() and not place.at[1:]
    if key == "<<":
        hint = "gpuctl reads no merge keys: write the keys out"
    elif is_of_run and (foreign := [form for form in formats() if key in form.keys]):
        hint = foreign[0].key_hint
    elif is_of_run and others:
        hint = f"it is one of {'type' if not others[1:] else 'types'} {', '.join(others)}"
    yield Mistake("E101", f"unknown key {quote(key)}", hint, place.at, on_key=True)


def _missing(place: _Place) -> Iterator[Mistake]:
    field = _field_at(place.model, place.at)
    assert field is not None
    hint = f"add it: {field.description}".removesuffix(".")
    yield Mistake("E102", f"{place.name} is missing", hint, place.at[:-1])


def _not_text(place: _Place) -> Iterator[Mistake]:
    hint = "write one text"
    if isinstance(place.details["input"], (bool, int, float)):
        hint = f"quote it: '{place.document.text_at(place.at)}'"
    elif place.details["input"] is None:
        hint = "write a text, or '' for an empty one"
    return place.mistake("E103", f"{place.name} is {place.actual}, must be text", hint)


def _not_integer(place: _Place) -> Iterator[Mistake]:
    text = place.details["input"]
    quoted = isinstance(text, str) and text.isdecimal()
    hint = "remove the quotes" if quoted else "write digits only, such as 2"
    actual = f"the text {place.actual}" if isinstance(text, str) else place.actual
    return place.mistake("E103", f"{place.name} is {actual}, must be a whole number", hint)


def _must_be(what: str, hint: str) -> Callable[[_Place], Iterator[Mistake]]:
    """Return the translation for a value of another type than `what`."""
    return lambda place: place.mistake(
        "E103", f"{place.name} is {place.actual}, must be {what}", hint
    )


def _not_mapping(place: _Place) -> Iterator[Mistake]:
    model = _model_at(place.model, place.at)
    fields = ", ".join(model.model_fields) if model is not BaseModel else "NAME: value"
    hint = f"write keys below it ({fields}), or remove it"
    if model is Secret:
        hint = "write {secret: NAME} for the secret of that name"
    return place.mistake("E103", f"{place.name} is {place.actual}, must be a mapping", hint)


def _not_unicode(place: _Place) -> Iterator[Mistake]:
    return place.mistake(
        "E203", f"{place.name} holds half a character (a lone surrogate)", "remove the escape"
    )


def _not_allowed(place: _Place) -> Iterator[Mistake]:
    field = _field_at(place.model, place.at)
    assert field is not None
    allowed = _literals(field.annotation)
    hint = choice_hint(place.details["input"], allowed)
    return place.mistake("E201", f"{place.name} is {place.actual}, which is not allowed", hint)


def _out_of_range(place: _Place) -> Iterator[Mistake]:
    field = _field_at(place.model, place.at)
    low, high = (_bound(field, name) for name in ("ge", "le"))
    side = "below" if place.details["type"] == "greater_than_equal" else "above"
    limit = low if side == "below" else high
    message = f"{place.name} is {place.details['input']}, {side} {limit}"
    return place.mistake("E202", message, f"use {low} to {high}")


def _wrong_form(place: _Place) -> Iterator[Mistake]:
    form = _FORMS[place.context["pattern"]]
    return place.mistake("E203", f"{place.name} is {place.actual}", f"write {form}")


def _too_short(place: _Place) -> Iterator[Mistake]:
    if place.on_key:
        return place.mistake("E203", f"{path_text(place.at[:-1])} has an empty key", "name it")
    if place.details["input"]:  # pydantic counts good entries only; bad ones are reported already
        return iter(())
    return place.mistake("E202", f"{place.name} is empty", "write at least one entry or letter")


def _too_long(place: _Place) -> Iterator[Mistake]:
    most = place.context["max_length"]
    unit = "characters" if isinstance(place.details["input"], str) else "entries"
    what = f"the key {place.name}" if place.on_key else place.name
    return place.mistake("E202", f"{what} has more than {most} {unit}", "shorten it")


def _refused(place: _Place) -> Iterator[Mistake]:
    for mistake in place.context["mistakes"]:
        at = place.at + mistake.at
        message = f"{place.name} is {place.actual}, {mistake.message}"
        if place.on_key:
            message = f"the key {quote(str(at[-1]))} {mistake.message}"
        elif mistake.at:
            message = f"{path_text(at)}: {mistake.message}"
        yield changed(mistake, message=message, at=at, on_key=place.on_key)


_TRANSLATIONS: dict[str, Callable[[_Place], Iterator[Mistake]]] = {
    "extra_forbidden": _unknown,
    "missing": _missing,
    "string_type": _not_text,
    "string_unicode": _not_unicode,
    "int_type": _not_integer,
    "float_type": _must_be("a number", "write digits, and a point if need be, such as 12.50"),
    "bool_type": _must_be("true or false", "write true or false"),
    "tuple_type": _must_be("a list", "write its entries on separate lines that begin with '- '"),
    "dict_type": _not_mapping,
    "model_type": _not_mapping,
    "literal_error": _not_allowed,
    "greater_than_equal": _out_of_range,
    "less_than_equal": _out_of_range,
    "string_pattern_mismatch": _wrong_form,
    "string_too_short": _too_short,
    "too_short": _too_short,
    "string_too_long": _too_long,
    "too_long": _too_long,
    REFUSED: _refused,
}

TRANSLATED = frozenset(_TRANSLATIONS)
"""The types of pydantic's errors for which gpuctl has a message."""


def _field_at(model: type[BaseModel], at: Path) -> FieldInfo | None:
    """Return the field at a path; for an entry of a list, the list's field."""
    while isinstance(at[-1], int):
        at = at[:-1]
    return _model_at(model, at[:-1]).model_fields.get(str(at[-1]))


def _model_at(model: type[BaseModel], at: Path) -> type[BaseModel]:
    """Return the model of the mapping at `at`; BaseModel, without fields, for a free mapping."""
    kinds: tuple[Any, ...] = (model,)
    for part in at:
        kinds = tuple(_inside(kinds, part))
    return next((kind for kind in kinds if _is_model(kind)), BaseModel)


def _inside(kinds: tuple[Any, ...], part: str | int) -> Iterator[Any]:
    """Yield the types that a value of one of the types may have at a key or index."""
    for kind in kinds:
        if _is_model(kind):
            field = kind.model_fields.get(str(part))
            yield from _branches(field.annotation) if field else ()
        elif get_origin(kind) is dict:
            yield from _branches(get_args(kind)[1])
        elif get_origin(kind) is tuple:
            yield from _branches(get_args(kind)[0])


def _branches(kind: Any) -> Iterator[Any]:
    """Yield the types of a union; of an Annotated type, the type that it annotates."""
    if get_origin(kind) is Annotated:
        yield from _branches(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for branch in get_args(kind):
            yield from _branches(branch)
    else:
        yield kind


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _literals(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return tuple(str(value) for value in get_args(annotation))
    return tuple(name for kind in get_args(annotation) for name in _literals(kind))


def _bound(field: FieldInfo | None, name: Literal["ge", "le"]) -> float | None:
    """Return the field's bound; for `X | None` the bound of X."""
    marks = list(field.metadata) if field else []
    for kind in get_args(field.annotation) if field else ():
        for mark in getattr(kind, "__metadata__", ()):
            marks += getattr(mark, "metadata", ())
    return next((getattr(mark, name) for mark in marks if hasattr(mark, name)), None)
