"""Load cluster and run files as models, or report all mistakes at once with line and column."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from config.cluster.cluster_file import Cluster
from config.cluster.cluster_rules import ambiguous_mistakes, cluster_mistakes, hosts_mistakes
from config.cluster.hosts_file import HostsCluster
from config.diagnostic import Diagnostic
from config.errors import InvalidFiles
from config.loading.formats import IGNORED, Reading, format_of
from config.loading.kinds import Kind, kind_of_document
from config.loading.manifests import is_manifest, read_job, unknown_manifest
from config.loading.messages import translate_errors
from config.loading.overrides import Overrides, Substitutions, unused_values
from config.loading.templates import resolve_template
from config.mistakes import Mistake
from config.models import Model
from config.run.code_rules import code_mistakes
from config.run.requirements import Requires
from config.run.role_rules import total_nodes
from config.run.run_file import RUN_TYPES, Run
from config.run.run_rules import own_file_mistakes, run_mistakes, unread_texts
from config.yaml.marked_yaml import Document

M = TypeVar("M", bound=Model)

Warn = Callable[[str], None]

_NO_OVERRIDES = Overrides()


def ignore(_: str) -> None:
    """Drop a warning."""


def load_cluster(path: Path, warn: Warn = ignore) -> Cluster:
    """Return the cluster that the file describes; `warn` gets each warning about a valid file.

    Raises InvalidFiles with every error, also for a file with `hosts`, and InputError for a file
    that cannot be read.
    """
    return _load(path, "cluster", _rented, warn)


def load_any_cluster(path: Path, warn: Warn = ignore) -> Cluster | HostsCluster:
    """Return the cluster, also one of hosts; the rest is as for `load_cluster`."""
    cluster = _load(path, "cluster", _cluster, warn)
    assert isinstance(cluster, (Cluster, HostsCluster))
    return cluster


def load_run(
    path: Path,
    overrides: Overrides = _NO_OVERRIDES,
    warn: Warn = ignore,
    *,
    is_strict: bool = False,
) -> Run:
    """Return the run that the file describes, one of RUN_TYPES; the rest is as for a cluster.

    With `is_strict` unknown keys are errors in dstack's files too.
    """
    return _load(path, "run", partial(_run, overrides=overrides, is_strict=is_strict), warn)


def check(
    path: Path, overrides: Overrides = _NO_OVERRIDES, *, is_strict: bool = False
) -> tuple[Diagnostic, ...]:
    """Return every diagnostic about a cluster or run file, in file order; empty for a good one.

    The kind of the file is derived from its keys. Codes with E are errors, with W warnings; a file
    with only warnings is valid. Raises InputError for a file that cannot be read.
    """
    document, diagnostics = read_job(path)
    if document is not None:
        kind = kind_of_document(document)
        if kind is None:
            diagnostics.append(_kindless(document))
        else:
            run = partial(_run, overrides=overrides, is_strict=is_strict)
            diagnostics += (_cluster if kind == "cluster" else run)(document)[1]
    return tuple(sorted(diagnostics))


def unchecked_requirements(path: Path, given: Substitutions) -> Requires | None:
    """Return what another tool's file asks of nodes, which a run does not check; else None."""
    document, _ = read_job(path)
    form = None if document is None else format_of(document)
    return form.requirements(document, given) if document and form else None


def _load(
    path: Path,
    kind: Kind,
    model_of: Callable[[Document], tuple[M | None, list[Diagnostic]]],
    warn: Warn,
) -> M:
    document, diagnostics = read_job(path)
    model = None
    if document is not None:
        if other := _other_kind(document, kind):
            raise InvalidFiles([other])
        if isinstance(document.data, dict):
            model, more = model_of(document)
            diagnostics += more
        else:
            diagnostics.append(_kindless(document))
    errors = [d for d in diagnostics if d.severity == "error"]
    if errors or model is None:
        raise InvalidFiles(errors)
    for warning in fold_ignored(sorted(diagnostics)):
        warn(str(warning))
    return model


_FIELDS = 6
"""The ignored fields that their common line names."""


def fold_ignored(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the diagnostics with one line for all fields of a manifest that are ignored.

    Nearly every manifest has some, and between their lines the others would not be seen.
    """
    every = list(diagnostics)
    ignored = [
        diagnostic
        for diagnostic in every
        if diagnostic.code == "W204" and IGNORED in diagnostic.message
    ]
    if len(ignored) < 2:
        return every
    paths = (diagnostic.message.partition(IGNORED)[0].strip("'") for diagnostic in ignored)
    names = list(dict.fromkeys(path.rpartition(".")[2] for path in paths))
    more = f" and {len(names) - _FIELDS} more" if names[_FIELDS:] else ""
    folded = replace(
        ignored[0],
        message=f"{len(ignored)} fields are ignored: {', '.join(names[:_FIELDS])}{more}",
        hint="see that the job does not need them: `gpuctl validate --json` has the reasons",
    )
    return [diagnostic for diagnostic in every if diagnostic not in ignored] + [folded]


def _cluster(document: Document) -> tuple[Cluster | HostsCluster | None, list[Diagnostic]]:
    """Return the model, or None; and all diagnostics."""
    if _HOSTS in document.data:
        return _validated(document, HostsCluster, document.data, hosts_mistakes(document.data))
    return _validated(document, Cluster, document.data, cluster_mistakes(document.data))


def _rented(document: Document) -> tuple[Cluster | None, list[Diagnostic]]:
    """Return the model of a cluster that gpuctl rents, or None; and all diagnostics."""
    cluster, diagnostics = _cluster(document)
    if isinstance(cluster, HostsCluster) or _HOSTS in document.data:
        message = "this cluster is of machines that exist: gpuctl rents and prices nothing for it"
        hint = "`gpuctl up FILE` shows what it writes on them, and asks"
        refused = document.locate(Mistake("E107", message, hint, (_HOSTS,), on_key=True))
        return None, [*diagnostics, refused]
    return cluster, diagnostics


_HOSTS = "hosts"


def _run(
    document: Document, overrides: Overrides, *, is_strict: bool
) -> tuple[Run | None, list[Diagnostic]]:
    """Return the model, or None; and all diagnostics."""
    form = format_of(document)
    if form is None and is_manifest(document):
        return None, [unknown_manifest(document)]
    is_like_ours = form is None or form.is_like_ours
    reading = form.read(document, overrides.manifest) if form else Reading(document, [])
    diagnostics = reading.diagnostics + unused_values(overrides.manifest, reading.placeholders)
    whole = reading.run_file
    if whole is not None and is_like_ours:
        whole, more = resolve_template(whole)
        diagnostics += more
    diagnostics = [_strict(diagnostic) if is_strict else diagnostic for diagnostic in diagnostics]
    if whole is None:
        return None, diagnostics
    whole, folder = overrides.applied(whole), Path(document.file).parent
    name = _run_type(whole.data)
    # A rule reports a wrong `type`; the other fields are validated as the closest type.
    data = _with_env_as_written(whole) | {"type": name, "nodes": total_nodes(whole.data, name)}
    own = own_file_mistakes(whole.data) if form is None else ()
    unread = unread_texts(whole.data, name) if is_like_ours else ()
    mistakes = chain(run_mistakes(whole.data, name), own, unread, code_mistakes(whole.data, folder))
    run, more = _validated(whole, RUN_TYPES[name], data, mistakes)
    return run, diagnostics + more


def _strict(diagnostic: Diagnostic) -> Diagnostic:
    """Return the diagnostic; an unknown key of another tool's file is an error."""
    return replace(diagnostic, code="E101") if diagnostic.code == "W207" else diagnostic


def _validated(
    document: Document, kind: type[M], data: dict[str, Any], by_rules: Iterator[Mistake]
) -> tuple[M | None, list[Diagnostic]]:
    mistakes = [*ambiguous_mistakes(data), *by_rules]
    model = None
    try:
        model = kind.model_validate(data)
    except ValidationError as error:
        reported = {
            (mistake.at, mistake.on_key) for mistake in mistakes if mistake.code.startswith("E")
        }
        translated = translate_errors(error, kind, document)
        mistakes += (
            mistake for mistake in translated if (mistake.at, mistake.on_key) not in reported
        )
    return model, [document.locate(mistake) for mistake in mistakes]


def _run_type(data: dict[str, Any]) -> str:
    """Return the run's type; if it is not valid, the first type that has most of its keys."""
    written = data.get("type")
    if isinstance(written, str) and written in RUN_TYPES:
        return written
    return max(RUN_TYPES, key=lambda name: len(RUN_TYPES[name].model_fields.keys() & data.keys()))


def _kindless(document: Document) -> Diagnostic:
    if not isinstance(document.data, dict):
        message, hint = "the file is not a mapping", "write keys and values: name: demo"
        return document.locate(Mistake("E105", message, hint))
    message = "this is neither a cluster file nor a run file"
    hint = "a cluster file has 'instance_type' or 'hosts', a run file has 'type' and 'commands'"
    return document.locate(Mistake("E106", message, hint))


def _other_kind(document: Document, expected: Kind) -> Diagnostic | None:
    """Return the only diagnostic about a file that was given to the wrong command, or None."""
    kind = kind_of_document(document)
    if kind is None or kind == expected:
        return None
    form = format_of(document)
    title = form.title if form else f"a {kind} file"
    if form is None and is_manifest(document):
        title = "a manifest of a run"
    hint = "give it to `gpuctl up`" if kind == "cluster" else "give it to `gpuctl run`"
    return document.locate(Mistake("E107", f"this is {title}", hint))


def _with_env_as_written(document: Document) -> dict[str, Any]:
    """Return the data with numbers in `env` and `sweep` as the text that is written in the file.

    A shell would see that text: 1.10 stays 1.10, and 010 is not 8. Words such as true and no stay
    unchanged and are therefore refused, as in Docker Compose.
    """
    data: dict[str, Any] = dict(document.data)
    if "env" in data:
        data["env"] = _env(document, data["env"], ("env",))
    if isinstance(data.get("sweep"), dict):
        data["sweep"] = {
            name: _env_list(document, values, ("sweep", name))
            for name, values in data["sweep"].items()
        }
    if isinstance(data.get("roles"), dict):
        data["roles"] = {
            name: {**role, "env": _env(document, role["env"], ("roles", name, "env"))}
            if isinstance(role, dict) and "env" in role
            else role
            for name, role in data["roles"].items()
        }
    return data


def _env(document: Document, env: Any, at: tuple[str, ...]) -> Any:
    if not isinstance(env, dict):
        return env
    return {name: _env_text(env[name], document.text_at((*at, name))) for name in env}


def _env_list(document: Document, values: Any, at: tuple[str, ...]) -> Any:
    if not isinstance(values, tuple):
        return values
    return tuple(
        _env_text(value, document.text_at((*at, index))) for index, value in enumerate(values)
    )


def _env_text(value: Any, written: str) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_bare_text = type(value) is not str and isinstance(value, str)
    if is_number or (is_bare_text and re.match(r"[-+.0-9]", written)):
        return written
    return value
