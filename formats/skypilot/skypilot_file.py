"""A task of SkyPilot while it is read: YAML 1.1, values in every form that SkyPilot accepts."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from config.mistakes import Path, path_text
from config.yaml.hints import describe_value, names_hint
from config.yaml.marked_yaml import Ambiguous
from formats.foreign_file import ForeignFile
from formats.skypilot.skypilot_keys import Key

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(mb|gb|tb)?\+?")


class SkyPilotFile(ForeignFile):
    """The values of a task of SkyPilot by their paths, and the mistakes so far."""

    def get(self, at: Path) -> Any:
        """Return the value as PyYAML reads it; None if it is null or missing."""
        value = super().get(at)
        return yaml.safe_load(value) if isinstance(value, Ambiguous) else value

    def text(self, at: Path) -> str:
        """Return the text; a number as it is written; empty if there is none."""
        value = self.get(at)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self.document.text_at(at)
        return super().text(at)

    def variable(self, at: Path) -> str:
        """Return the value as Python writes it, for so SkyPilot does: `true` is True."""
        value = self.get(at)
        if isinstance(value, (dict, tuple)):
            return super().text(at)  # which reports it
        return str(value)

    def refuse(self, at: Path, why: str, hint: str, *, on_key: bool = False) -> None:
        """Refuse a part that gpuctl cannot carry out."""
        self.complain("E228", f"'{path_text(at)}' {why}", hint, at, on_key=on_key)

    def leave_out(self, at: Path, why: str) -> None:
        """Report that a value has no effect."""
        message = f"'{path_text(at)}' is left out: {why}"
        self.complain("W206", message, "remove it if the job does not need it", at, on_key=True)

    def check_keys(self, at: Path, keys: tuple[Key, ...]) -> None:
        """Report the keys of the mapping that have no effect, are refused, or nobody knows."""
        table: Mapping[str, Key] = {key.name: key for key in keys}
        for name, value in self.mapping(at).items():
            key, place = table.get(name), (*at, name)
            if name == "<<":
                self.refuse(place, "merges keys, which gpuctl does not", "write the keys out")
            elif key is None:
                message = f"unknown key '{path_text(place)}': neither SkyPilot nor gpuctl has it"
                self.complain("W207", message, names_hint(name, table), place, on_key=True)
            elif value is not None and key.answer == "leaves out":
                self.leave_out(place, key.text)
            elif value is not None and key.answer == "refuses":
                self.refuse(place, "cannot be carried out", key.text, on_key=True)

    def least(self, at: Path, unit: str) -> str | None:
        """Return the range from a number, or a size in GB, upwards; None if there is none."""
        written = self.text(at).replace(" ", "")
        if not written:
            return None
        match = _SIZE.fullmatch(written.lower())
        if match is None or (match[2] and not unit):
            message = f"'{path_text(at)}' is {describe_value(self.get(at))}"
            hint = "write 64, 64+ or 64GB" if unit else "write 8 or 8+"
            self.complain("E203", message, hint, at)
            return None
        number = f"{float(match[1]):g}" if unit else str(-(-float(match[1]) // 1)).partition(".")[0]
        return f"{number}{(match[2] or unit).upper()}.."
