"""Cluster and run files -> models, or every complaint at once, each with its line and column."""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import ValidationError

from config.cluster import Cluster, Model
from config.complaints import faults_of
from config.diagnostics import Diagnostic
from config.errors import InputError, InvalidFiles
from config.faults import Fault
from config.marked_yaml import Document, read_yaml
from config.rules import Data, ambiguous_faults, cluster_faults, run_faults
from config.run import Run

M = TypeVar("M", bound=Model)
Kind = Literal["cluster", "run"]

_LARGEST_FILE = 1 << 20


class _Reader(Generic[M]):
    """How files of one kind are read."""

    def __init__(self, model: type[M], rules: Callable[[Data], Iterator[Fault]]) -> None:
        self.model = model
        self._rules = rules

    def read(self, document: Document, file: str) -> tuple[M | None, list[Diagnostic]]:
        """The model, or None; and everything there is to say."""
        data = document.data
        if not isinstance(data, dict):
            message, hint = "the file is not a mapping", "write keys and values: name: demo"
            return None, [_located(document, file, Fault("E105", message, hint))]
        if self.model is Run:
            data = _with_env_as_written(document)
        faults = [*ambiguous_faults(data), *self._rules(data)]
        model = None
        try:
            model = self.model.model_validate(data)
        except ValidationError as error:
            said = {(fault.at, fault.on_key) for fault in faults if fault.code.startswith("E")}
            found = faults_of(error, self.model, document)
            faults += (fault for fault in found if (fault.at, fault.on_key) not in said)
        return model, [_located(document, file, fault) for fault in faults]


_CLUSTER = _Reader(Cluster, cluster_faults)
_RUN = _Reader(Run, run_faults)


def load_cluster(path: Path) -> Cluster:
    """The cluster that the file asks for.

    Raises InvalidFiles with every complaint, InputError for a file that cannot be read.
    """
    return _load(path, _CLUSTER)


def load_run(path: Path) -> Run:
    """The run that the file asks for. Warnings do not stop it: `check` tells them.

    Raises InvalidFiles with every complaint, InputError for a file that cannot be read.
    """
    return _load(path, _RUN)


def check(path: Path) -> tuple[Diagnostic, ...]:
    """Every complaint about a cluster or run file, in file order; empty for a good one.

    Which kind it is, is seen from its keys. Codes with E are errors, with W warnings: a file with
    warnings alone is valid. Raises InputError for a file that cannot be read.
    """
    document, diagnostics = _parse(path)
    if document is not None:
        kind = kind_of(document.data)
        if kind is None:
            diagnostics += _kindless(document, str(path))
        else:
            reader: _Reader[Any] = _CLUSTER if kind == "cluster" else _RUN
            diagnostics += reader.read(document, str(path))[1]
    return tuple(sorted(diagnostics))


def kind_of(data: Any) -> Kind | None:
    """Which kind of file has such keys, misspelled ones included; None when none or both fit."""
    if not isinstance(data, dict):
        return None
    cluster, run = set(Cluster.model_fields), set(Run.model_fields)
    scores = {
        "cluster": _alike(data, cluster - run),
        "run": _alike(data, run - cluster),
    }
    if scores["cluster"] == scores["run"]:
        return None
    return "cluster" if scores["cluster"] > scores["run"] else "run"


def _alike(data: dict[str, Any], keys: set[str]) -> int:
    return sum(bool(get_close_matches(key, keys, n=1, cutoff=0.75)) for key in data)


def _kindless(document: Document, file: str) -> list[Diagnostic]:
    if not isinstance(document.data, dict):
        return _CLUSTER.read(document, file)[1]
    message = "this is neither a cluster file nor a run file"
    hint = "a cluster file has 'instance_type', a run file has 'type' and 'commands'"
    return [_located(document, file, Fault("E106", message, hint))]


def _load(path: Path, reader: _Reader[M]) -> M:
    document, diagnostics = _parse(path)
    model = None
    if document is not None:
        if other := _other_kind(document, str(path), reader):
            raise InvalidFiles([other])
        model, found = reader.read(document, str(path))
        diagnostics += found
    errors = [d for d in diagnostics if d.severity == "error"]
    if errors or model is None:
        raise InvalidFiles(errors)
    return model


def _other_kind(document: Document, file: str, reader: _Reader[Any]) -> Diagnostic | None:
    """The one complaint about a file that was given to the wrong command."""
    kind = kind_of(document.data)
    if kind is None or (reader is _CLUSTER) == (kind == "cluster"):
        return None
    message = f"this is a {kind} file"
    hint = "give it to `gpuctl up`" if kind == "cluster" else "give it to `gpuctl run`"
    return _located(document, file, Fault("E107", message, hint))


def _parse(path: Path) -> tuple[Document | None, list[Diagnostic]]:
    try:
        if path.is_file() and path.stat().st_size > _LARGEST_FILE:
            raise InputError(f"{path} has more than 1 MiB", "is it the right file?")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "check the path") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
        message, hint = "the file is not UTF-8 text", "save it as UTF-8"
        return None, [Diagnostic(str(path), line, column, "E004", message, hint)]
    return read_yaml(text, str(path))


def _located(document: Document, file: str, fault: Fault) -> Diagnostic:
    line, column = document.position(fault.at, on_key=fault.on_key)
    return Diagnostic(file, line, column, fault.code, fault.message, fault.hint)


def _with_env_as_written(document: Document) -> dict[str, Any]:
    """Numbers in a mapping under `env` become the text that stands in the file.

    That is what a shell would see: 1.10 stays 1.10, and 010 is not 8. Words such as true and no
    are left as they are, and so refused, as Docker Compose does.
    """
    data: dict[str, Any] = document.data
    env = data.get("env")
    if not isinstance(env, dict):
        return data
    return data | {"env": {name: _env_text(document, name, env[name]) for name in env}}


def _env_text(document: Document, name: str, value: Any) -> Any:
    written = document.written(("env", name))
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_bare_text = type(value) is not str and isinstance(value, str)
    if is_number or (is_bare_text and re.match(r"[-+.0-9]", written)):
        return written
    return value
