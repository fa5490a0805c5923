"""Ctrl-C while gpuctl follows a run: stop the run, or leave it alone."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from config.errors import InputError

if TYPE_CHECKING:
    from cli.output import Output
    from operations.runs import Answer, OnInterrupt

OnInterruptOption = Annotated[
    str,
    typer.Option(
        "--on-interrupt",
        metavar="stop|detach|ask",
        help="What Ctrl-C does with the run; `ask` asks on a terminal.",
    ),
]

_ANSWERS: "dict[str, Answer]" = {"s": "stop", "stop": "stop", "d": "detach", "detach": "detach"}


def on_interrupt(
    choice: str, run_id: str, out: "Output", *, is_attached: bool = False
) -> "OnInterrupt":
    """Return what answers Ctrl-C, as `--on-interrupt` says it.

    A client that has attached to the run (`is_attached`) stops it only after the answer `stop`.
    Raises InputError for another choice.
    """
    if choice != "ask" and choice not in ("stop", "detach"):
        hint = "stop, detach and ask are allowed"
        raise InputError(f"--on-interrupt is '{choice}'", hint)

    def answer() -> "Answer":
        if choice != "ask":
            return _ANSWERS[choice]
        if sys.stdin.isatty():
            return _ask(run_id, out, "detach" if is_attached else "abort")
        return "detach" if is_attached else "stop"

    return answer


def _ask(run_id: str, out: "Output", again: "Answer") -> "Answer":
    """Ask the person; Ctrl-C again is the answer `again`, and a closed terminal detaches.

    Nothing is printed meanwhile, because gpuctl reads no events while it waits for the answer.
    """
    means = "aborts it" if again == "abort" else "detaches"
    question = f"\n{run_id}: stop it, or detach and leave it running? Ctrl-C again {means}"
    try:
        while True:
            line = out.ask(f"{question} [stop/detach]: ")
            if not line:
                return "detach"
            if answer := _ANSWERS.get(line.strip().lower()):
                return answer
    except KeyboardInterrupt:
        return again
