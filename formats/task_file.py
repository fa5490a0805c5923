"""Another tool's task in YAML while it is read: YAML 1.1 as PyYAML has it (`off` is false)."""

from typing import Any, ClassVar

import yaml

from config.mistakes import Path, path_text
from config.yaml.marked_yaml import Ambiguous
from formats.foreign_file import ForeignFile


class TaskFile(ForeignFile):
    """The values of a task by their paths, and the mistakes found so far."""

    tool: ClassVar[str]
    """The name of the tool in messages."""

    def get(self, at: Path) -> Any:
        """Return the value as YAML 1.1 has it; None if it is null or missing."""
        value = super().get(at)
        return yaml.safe_load(value) if isinstance(value, Ambiguous) else value

    def text(self, at: Path) -> str:
        """Return the text; a number as it is written; empty if there is none."""
        value = self.get(at)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self.document.text_at(at)
        return super().text(at)

    def refuse(self, at: Path, why: str, hint: str, *, on_key: bool = False) -> None:
        """Refuse a part that gpuctl cannot carry out."""
        self.complain("E228", f"'{path_text(at)}' {why}", hint, at, on_key=on_key)

    def leave_out(self, at: Path, why: str) -> None:
        """Report that a value has no effect."""
        message = f"'{path_text(at)}' is left out: {why}"
        self.complain("W206", message, "remove it if the job does not need it", at, on_key=True)

    def report_unknown(self, at: Path, hint: str) -> None:
        """Warn of a key that neither the tool nor gpuctl has; refuse YAML's `<<`."""
        if at[-1] == "<<":
            self.refuse(at, "merges keys, which gpuctl does not", "write the keys out")
        else:
            message = f"unknown key '{path_text(at)}': neither {self.tool} nor gpuctl has it"
            self.complain("W207", message, hint, at, on_key=True)
