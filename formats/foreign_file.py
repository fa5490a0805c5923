"""Another tool's file while it is read: its values by path, and the mistakes found so far."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from config.cluster.cluster_rules import ambiguous_mistakes
from config.diagnostic import Diagnostic
from config.identifiers import RUN_NAME
from config.loading.formats import IGNORED, Reading
from config.loading.overrides import Substitutions
from config.mistakes import Mistake, Path, path_text
from config.run.run_file import FORMS
from config.yaml.hints import choice_hint, describe_value
from config.yaml.marked_yaml import Ambiguous, Document
from formats.converted import Placed, document_with

_WHY_IGNORED = {
    **dict.fromkeys(
        ("volumes", "volumeMounts", "volumeClaimTemplates"),
        "nodes have the cluster's file systems, in containers too",
    ),
    **dict.fromkeys(
        ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "nodeName"),
        "the run takes nodes of its cluster, next to each other",
    ),
    **dict.fromkeys(("resources", "resourcesPerNode"), "a run has the whole of its nodes"),
    **dict.fromkeys(
        ("backoffLimit", "maxRetry"), "a run that fails is not started again by itself"
    ),
    "securityContext": "commands run as root, with all devices of the node",
    "imagePullSecrets": "the image is pulled without credentials",
}
"""The reason why a run ignores a key."""


# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/, 2026-11-23.
_OBJECT_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_LONGEST_S = 999_999 * 60  # a run file has at most six digits


class ForeignFile:
    """A file's values by their paths; `mistakes` are those of the values read so far.

    `diagnostics` are about this file and those that it uses, and `placeholders` are the names
    of envsubst in all of them.
    """

    def __init__(self, document: Document, given: Substitutions) -> None:
        self.document = document
        self.given = given
        self.mistakes: list[Mistake] = []
        self.diagnostics: list[Diagnostic] = []
        self.placeholders: set[str] = set()

    @property
    def is_refused(self) -> bool:
        """Return whether there is an error, and not only warnings."""
        return any(mistake.code.startswith("E") for mistake in self.mistakes)

    def reading(self, data: Mapping[str, Any]) -> Reading:
        """Return the file as a run file with this data, or why it cannot be one."""
        located = map(self.document.locate, dict.fromkeys(self.mistakes))
        diagnostics = [*self.diagnostics, *located]
        is_refused = any(diagnostic.severity == "error" for diagnostic in diagnostics)
        run_file = None if is_refused else document_with(data, self.document)
        return Reading(run_file, diagnostics, frozenset(self.placeholders))

    def complain(
        self, code: str, message: str, hint: str, at: Path, *, on_key: bool = False
    ) -> None:
        """Add a mistake about the value at `at`."""
        self.mistakes.append(Mistake(code, message, hint, at, on_key))

    def refuse_part(self, at: Path, hint: str, *, on_key: bool = True) -> None:
        """Report the value at `at` as one that only Kubernetes can carry out."""
        message = f"'{path_text(at)}' cannot be carried out: there is no Kubernetes here"
        self.complain("E225", message, hint, at, on_key=on_key)

    def get(self, at: Path) -> Any:
        """Return the value unchanged; None if it is null or missing."""
        value = self.document.data
        for part in at:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, tuple) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                return None
        return value

    def text(self, at: Path) -> str:
        """Return the text; empty if there is none."""
        value = self.get(at)
        if isinstance(value, Ambiguous):
            self.mistakes += ambiguous_mistakes(value, at)
        elif value is not None and not isinstance(value, str):
            hint = "write one text"
            if isinstance(value, (bool, int, float)):
                hint = f"quote it: '{self.document.text_at(at)}'"
            self._mistyped(at, "text", hint)
        else:
            return value or ""
        return ""

    def texts(self, at: Path) -> tuple[str, ...]:
        """Return the entries of a list of texts."""
        return tuple(self.text((*at, index)) for index in range(len(self.entries(at))))

    def whole(self, at: Path, default: int, least: int = 1, most: int = 10**17) -> int:
        """Return the whole number; `default` if there is none."""
        value = self.get(at)
        if value is None:
            return default
        if type(value) is not int:
            self._mistyped(at, "a whole number", "write digits only, such as 2")
            return default
        if value < least:
            message = f"'{path_text(at)}' is {value}, below {least}"
            self.complain("E202", message, f"use {least} or more", at)
            return default
        if value > most:
            message = f"'{path_text(at)}' is {value}, above {most}"
            self.complain("E202", message, f"use {least} to {most}", at)
            return default
        return value

    def flag(self, at: Path) -> bool:
        """Return the boolean; False if there is none."""
        value = self.get(at)
        if value is not None and not isinstance(value, bool):
            self._mistyped(at, "true or false", "write true or false")
        return value is True

    def choice(self, at: Path, allowed: tuple[str, ...]) -> str:
        """Return one of the allowed texts; the first if there is none."""
        value = self.text(at)
        if value and value not in allowed:
            message = f"'{path_text(at)}' is {describe_value(value)}, which is not allowed"
            self.complain("E201", message, choice_hint(value, allowed), at)
        return value if value in allowed else allowed[0]

    def entries(self, at: Path) -> tuple[Any, ...]:
        """Return the entries of a list; none if there is no list."""
        value = self.get(at)
        if value is not None and not isinstance(value, tuple):
            hint = "write its entries on separate lines that begin with '- '"
            self._mistyped(at, "a list", hint)
        return value if isinstance(value, tuple) else ()

    def mapping(self, at: Path) -> dict[str, Any]:
        """Return the mapping; an empty one if there is none."""
        value = self.get(at)
        if value is not None and not isinstance(value, dict):
            self._mistyped(at, "a mapping", "write keys below it")
        return value if isinstance(value, dict) else {}

    def require(self, at: Path) -> None:
        """Report if there is nothing at `at`."""
        if self.get(at) is None:
            self.complain("E102", f"'{path_text(at)}' is missing", "add it", at)

    def name(self) -> Placed:
        """Return `metadata.name`, or the beginning of `metadata.generateName`, as a run's name.

        Kubernetes' names may be longer than a run's: then the run has the first 41 characters.
        """
        at: Path = ("metadata", "name")
        name = self.text(at)
        if not name:
            at = ("metadata", "generateName")
            name = self.text(at).rstrip("-")
        if not name:
            self.complain("E102", "'metadata.name' is missing", "add it", ("metadata",))
        elif re.fullmatch(_OBJECT_NAME, name) and not re.fullmatch(RUN_NAME, name):
            short = _shortened(name)
            message = f"'{path_text(at)}' is {describe_value(name)}: the run is called '{short}'"
            hint = f"write {FORMS[RUN_NAME]}, to choose its name"
            self.complain("W204", message, hint, at)
            return Placed(short, at)
        elif not re.fullmatch(RUN_NAME, name):
            message = f"'{path_text(at)}' is {describe_value(name)}, which no run can be called"
            self.complain("E203", message, f"write {FORMS[RUN_NAME]}", at)
        return Placed(name, at)

    def warn_unknown(self, at: Path, known: Collection[str]) -> None:
        """Warn of keys of the mapping that are not known: they have no effect."""
        for key, value in self.mapping(at).items():
            if key not in known and value is not None:
                self.warn_ignored((*at, key))

    def warn_ignored(self, at: Path, why: str = "") -> None:
        """Warn that the value at `at` has no effect."""
        why = why or _WHY_IGNORED.get(str(at[-1]), "there is nothing like it here")
        hint = "see that the job does not need it, or remove it"
        message = f"'{path_text(at)}'{IGNORED}{why}"
        self.complain("W204", message, hint, at, on_key=True)

    def warn_retries(self, at: Path) -> None:
        """Warn that a number of retries above 0 has no effect."""
        if self.get(at) not in (None, 0):
            self.warn_ignored(at)

    def deadline(self, at: Path) -> dict[str, Any]:
        """Return a run's `max_duration` for a number of seconds, in minutes above 6 digits."""
        seconds = self.whole(at, default=0, most=_LONGEST_S)
        text = f"{seconds}s" if seconds < 10**6 else f"{-(-seconds // 60)}m"
        return {"max_duration": Placed(text, at)} if seconds else {}

    def _mistyped(self, at: Path, expected: str, hint: str) -> None:
        actual = describe_value(self.get(at), self.document.text_at(at))
        self.complain("E103", f"'{path_text(at)}' is {actual}, must be {expected}", hint, at)


def _shortened(name: str) -> str:
    name = name.replace(".", "-")
    return f"{'' if name[0].isalpha() else 'job-'}{name}"[:41].rstrip("-")
