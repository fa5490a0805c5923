"""The keys of another tool's file, and gpuctl's answer to each: for the reader and the page."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from config.generated_page import merged_rows

Answer = Literal["does", "checks", "leaves out", "accounting", "refuses"]
_MEANINGS: Mapping[Answer, str] = {
    "does": "gpuctl does what {tool} does",
    "checks": "compared with the cluster, before anything runs",
    "leaves out": "a line of the output (`W206`) says so; the run goes on without it",
    "accounting": "matters to a shared cluster alone; one line (`W206`) names all of these",
    "refuses": "an error (`E228`): without it the job would be another one",
}


@dataclass(frozen=True)
class Key:
    """A key, or an option, of another tool. `text` is what gpuctl does, or why it does not."""

    name: str
    answer: Answer
    text: str

    @property
    def cell(self) -> str:
        """The key in a table."""
        return f"`{self.name}`"


def answer_lines(tool: str, keys: Iterable[Key]) -> list[str]:
    """Return the table of the answers that the keys have, with the meaning of each."""
    answers = {key.answer for key in keys}
    rows = (
        f"| *{answer}* | {meaning.format(tool=tool)} |"
        for answer, meaning in _MEANINGS.items()
        if answer in answers
    )
    return ["| gpuctl | |", "| --- | --- |", *rows, ""]


def key_lines(keys: Iterable[Key], kind: str = "key") -> list[str]:
    """Return the table of the keys; keys with the same answer and text are one row."""
    rows = merged_rows((key.cell, f"*{key.answer}* | {key.text}") for key in keys)
    return [f"| {kind} | gpuctl | how, or why not |", "| --- | --- | --- |", *rows, ""]
