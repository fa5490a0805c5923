"""The form of `config.yaml`, and the mistakes in one.

Every command with a settings file or a variable of ours comes through here. What words mistakes
imports the models of all kinds of files, 0.1 s of CPU time. The command line executes it for a
mistake alone (`cli/lazy_modules.py`).
"""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from config.cluster.cluster_file import REGION
from config.diagnostic import Diagnostic
from config.duration import Duration
from config.errors import InputError
from config.loading import messages
from config.mistakes import Mistake
from config.models import Model
from config.yaml.hints import names_hint
from config.yaml.marked_yaml import Document, read_file, read_yaml


class Settings(Model):
    """The settings of a file, or of one of its profiles."""

    aws_profile: str | None = Field(default=None, description="A profile of your AWS files.")
    backend: str | None = Field(
        default=None, description="The bucket of a team, s3://…, or another backend of Pulumi."
    )
    check_permissions: bool | None = Field(
        default=None, description="Whether `plan` and `up` end if a permission is missing."
    )
    gc_regions: tuple[Annotated[str, Field(pattern=REGION)], ...] | None = Field(
        default=None, min_length=1, description="The regions that `gpuctl gc` searches."
    )
    lifetime: Duration | None = Field(
        default=None, description="`lifetime.max` of clusters whose file has no `lifetime`."
    )
    owner: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="The tag gpuctl:owner of new clusters."
    )
    pulumi: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="The command `pulumi` of Pulumi's engine."
    )
    region: Annotated[str, Field(pattern=REGION)] | None = Field(
        default=None, description="AWS region of clusters whose file has no `region`."
    )
    state: str | None = Field(default=None, description="The folder for gpuctl's records.")


class SettingsFile(Settings):
    """A whole file: settings, profiles that override them, and the profile that counts."""

    profile: str | None = Field(default=None, description="The profile that counts.")
    profiles: dict[str, Settings] = Field(
        default_factory=dict, description="Settings by the name of a profile."
    )


def read_settings(
    path: Path,
) -> tuple[Document | None, SettingsFile | None, list[Diagnostic]]:
    """Return the file's document and model, each None if it has none, and all mistakes."""
    document, diagnostics = read_file(path)
    if document is None:
        # An empty file, and one with comments alone, sets nothing.
        return None, None, [diagnostic for diagnostic in diagnostics if diagnostic.code != "E005"]
    if not isinstance(document.data, dict):
        wrong = Mistake("E105", "the file is not a mapping", "write keys and values: region: …")
        return document, None, [*diagnostics, document.locate(wrong)]
    model = None
    try:
        model = SettingsFile.model_validate(document.data)
    except ValidationError as error:
        mistakes = list(messages.translate_errors(error, SettingsFile, document))
    else:
        mistakes = [*_unknown_profile(model)]
    return document, model, [*diagnostics, *(document.locate(mistake) for mistake in mistakes)]


def _unknown_profile(model: SettingsFile) -> list[Mistake]:
    if model.profile is None or model.profile in model.profiles:
        return []
    hint = names_hint(model.profile, model.profiles) if model.profiles else "there are no profiles"
    return [Mistake("E201", f"'{model.profile}' is no profile of this file", hint, ("profile",))]


def value_of_text(name: str, text: str, variable: str) -> Any:
    """Return a setting's value of a variable's text; InputError if it is no such value."""
    value: Any = {"true": True, "false": False}.get(text, text) if _is_switch(name) else text
    if name == "gc_regions":
        value = tuple(text.split(","))
    try:
        return getattr(Settings.model_validate({name: value}), name)
    except ValidationError as error:
        document, _ = read_text(name, text)
        mistake = next(messages.translate_errors(error, Settings, document))
        raise InputError(f"{variable}: {mistake.message}", mistake.hint) from None


def _is_switch(name: str) -> bool:
    return name == "check_permissions"


def read_text(name: str, text: str) -> tuple[Document, list[Diagnostic]]:
    """Return the document that a file with this one setting would be."""
    document, diagnostics = read_yaml(f"{name}: {json.dumps(text)}\n", name)
    assert document is not None
    return document, diagnostics
