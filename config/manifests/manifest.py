"""A manifest while it is read: values as they are asked for, and what there is to say of them."""

import re
from collections.abc import Collection
from typing import Any

from config.cluster.cluster_file import FORMS, NAME
from config.cluster.cluster_rules import ambiguous_faults
from config.findings import Fault, Path, spelled
from config.manifests.converted import Placed
from config.yaml.hints import choice_hint, spoken
from config.yaml.marked_yaml import Ambiguous, Document

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
"""By the key, why it is nothing that a run has."""


class Manifest:
    """A manifest's values by their paths; `faults` are complaints about those asked for so far."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.faults: list[Fault] = []

    @property
    def is_refused(self) -> bool:
        """Whether anything is wrong, and not just ignored."""
        return any(fault.code.startswith("E") for fault in self.faults)

    def complain(
        self, code: str, message: str, hint: str, at: Path, *, on_key: bool = False
    ) -> None:
        """There is something to say about the value at `at`."""
        self.faults.append(Fault(code, message, hint, at, on_key))

    def get(self, at: Path) -> Any:
        """The value as it is; None where it is null or not there."""
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
        """The text; empty where there is none."""
        value = self.get(at)
        if isinstance(value, Ambiguous):
            self.faults += ambiguous_faults(value, at)
        elif value is not None and not isinstance(value, str):
            hint = "write one text"
            if isinstance(value, (bool, int, float)):
                hint = f"quote it: '{self.document.written(at)}'"
            self._mistyped(at, "text", hint)
        else:
            return value or ""
        return ""

    def texts(self, at: Path) -> tuple[str, ...]:
        """The entries of a list of texts."""
        return tuple(self.text((*at, index)) for index in range(len(self.entries(at))))

    def whole(self, at: Path, default: int, least: int = 1) -> int:
        """The whole number."""
        value = self.get(at)
        if value is None:
            return default
        if type(value) is not int:
            self._mistyped(at, "a whole number", "write digits only, such as 2")
            return default
        if value < least:
            message = f"'{spelled(at)}' is {value}, below {least}"
            self.complain("E202", message, f"use {least} or more", at)
            return default
        return value

    def flag(self, at: Path) -> bool:
        """The boolean; False where there is none."""
        value = self.get(at)
        if value is not None and not isinstance(value, bool):
            self._mistyped(at, "true or false", "write true or false")
        return value is True

    def choice(self, at: Path, allowed: tuple[str, ...]) -> str:
        """One of the allowed texts; the first where there is none."""
        value = self.text(at)
        if value and value not in allowed:
            message = f"'{spelled(at)}' is {spoken(value)}, which is not allowed"
            self.complain("E201", message, choice_hint(value, allowed), at)
        return value if value in allowed else allowed[0]

    def entries(self, at: Path) -> tuple[Any, ...]:
        """The entries of a list; none where there is no list."""
        value = self.get(at)
        if value is not None and not isinstance(value, tuple):
            hint = "write its entries on separate lines that begin with '- '"
            self._mistyped(at, "a list", hint)
        return value if isinstance(value, tuple) else ()

    def mapping(self, at: Path) -> dict[str, Any]:
        """The mapping; an empty one where there is none."""
        value = self.get(at)
        if value is not None and not isinstance(value, dict):
            self._mistyped(at, "a mapping", "write keys below it")
        return value if isinstance(value, dict) else {}

    def require(self, at: Path) -> None:
        """It is told where there is nothing at `at`."""
        if self.get(at) is None:
            self.complain("E102", f"'{spelled(at)}' is missing", "add it", at)

    def name(self) -> Placed:
        """`metadata.name`, or what `metadata.generateName` begins with, as a run's name."""
        at: Path = ("metadata", "name")
        name = self.text(at)
        if not name:
            at = ("metadata", "generateName")
            name = self.text(at).rstrip("-")
        if not name:
            self.complain("E102", "'metadata.name' is missing", "add it", ("metadata",))
        elif not re.fullmatch(NAME, name):
            message = f"'{spelled(at)}' is {spoken(name)}, which no run can be called"
            self.complain("E203", message, f"write {FORMS[NAME]}", at)
        return Placed(name, at)

    def ignore(self, at: Path, known: Collection[str]) -> None:
        """Keys of the mapping that are not known are told: they mean nothing here."""
        for key, value in self.mapping(at).items():
            if key not in known and value is not None:
                self.ignored((*at, key))

    def ignored(self, at: Path, why: str = "") -> None:
        """The value at `at` is told to mean nothing here."""
        why = why or _WHY_IGNORED.get(str(at[-1]), "there is nothing like it here")
        hint = "see that the job does not need it, or remove it"
        message = f"'{spelled(at)}' is ignored: {why}"
        self.complain("W204", message, hint, at, on_key=True)

    def not_retried(self, at: Path) -> None:
        """A number of retries, other than none, is told to mean nothing here."""
        if self.get(at) not in (None, 0):
            self.ignored(at)

    def deadline(self, at: Path) -> dict[str, Any]:
        """A run's `max_duration` for a number of seconds, in minutes above 6 digits."""
        seconds = self.whole(at, default=0)
        text = f"{seconds}s" if seconds < 10**6 else f"{-(-seconds // 60)}m"
        return {"max_duration": Placed(text, at)} if seconds else {}

    def _mistyped(self, at: Path, wanted: str, hint: str) -> None:
        actual = spoken(self.get(at), self.document.written(at))
        self.complain("E103", f"'{spelled(at)}' is {actual}, must be {wanted}", hint, at)
