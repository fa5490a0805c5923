"""A task of SkyPilot while it is read: YAML 1.1, values in every form that SkyPilot accepts."""

import re
from collections.abc import Mapping

from config.mistakes import Path, path_text
from config.yaml.hints import describe_value, names_hint
from formats.key_table import Key
from formats.task_file import TaskFile

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(mb|gb|tb)?\+?")


class SkyPilotFile(TaskFile):
    """The values of a task of SkyPilot by their paths, and the mistakes so far."""

    tool = "SkyPilot"

    def variable(self, at: Path) -> str:
        """Return the value as Python writes it, for so SkyPilot does: `true` is True."""
        value = self.get(at)
        if isinstance(value, (dict, tuple)):
            return super().text(at)  # which reports it
        return str(value)

    def check_keys(self, at: Path, keys: tuple[Key, ...]) -> None:
        """Report the keys of the mapping that have no effect, are refused, or nobody knows."""
        table: Mapping[str, Key] = {key.name: key for key in keys}
        for name, value in self.mapping(at).items():
            key, place = table.get(name), (*at, name)
            if key is None:
                self.report_unknown(place, names_hint(name, table))
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
