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
    choice: str, run_id: str, out: "Output", unattended: "Answer" = "stop"
) -> "OnInterrupt":
    """Return what answers Ctrl-C, as `--on-interrupt` says it.

    `unattended` is the answer to `ask` without a terminal. Raises InputError for another choice.
    """
    if choice != "ask" and choice not in ("stop", "detach"):
        hint = "stop, detach and ask are allowed"
        raise InputError(f"--on-interrupt is '{choice}'", hint)

    def answer() -> "Answer":
        if choice != "ask":
            return _ANSWERS[choice]
        return _ask(run_id, out) if sys.stdin.isatty() else unattended

    return answer


def _ask(run_id: str, out: "Output") -> "Answer":
    """Ask the person; Ctrl-C again aborts, and a closed terminal detaches.

    Nothing is printed meanwhile, because gpuctl reads no events while it waits for the answer.
    """
    question = f"\n{run_id}: stop it, or detach and leave it running? Ctrl-C again aborts it"
    try:
        while True:
            line = out.ask(f"{question} [stop/detach]: ")
            if not line:
                return "detach"
            if answer := _ANSWERS.get(line.strip().lower()):
                return answer
    except KeyboardInterrupt:
        return "abort"
