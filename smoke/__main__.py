"""`python -m smoke`, which is `make aws-smoke` and `scripts/aws-smoke`."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from config.errors import GpuctlError, InputError
from lab.places import DEFAULT, Places
from provision.aws.calls import VARIABLE
from smoke.ladder import Ladder
from smoke.ladder_record import LadderRecord, read_record
from smoke.steps import STEPS
from smoke.workplace import GPUCTL, HOME, Workplace

LAB_ANSWERS = HOME / "smoke" / "lab.json"
"""A record of the whole ladder in a lab, with which AWS's answers are compared."""

RECORD = Path("aws-smoke.json")


def main() -> int:
    """Climb the ladder; return the exit code."""
    arguments = _parser().parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        places = _lab(arguments)
        if not sys.stdin.isatty() and arguments.yes_up_to < arguments.first:
            raise InputError(
                "no terminal can answer the questions",
                f"name the last step that you agree to, such as --yes-up-to {arguments.first}",
            )
        record = arguments.record or (RECORD.with_stem("lab-smoke") if places else RECORD)
        if record.exists():
            read_record(record)  # a file that is no record is found before anything is paid for
        lab = LadderRecord()
        if against := arguments.against or (None if places else LAB_ANSWERS):
            lab = read_record(against)
        with tempfile.TemporaryDirectory(prefix="gpuctl-smoke-") as folder:
            site = Workplace(places, Path(folder))
            os.environ[VARIABLE] = str(site.calls)
            if places is not None:
                started = subprocess.run([GPUCTL, *places.options, "lab", "start"], check=False)
                if started.returncode:
                    return started.returncode
            site.who  # noqa: B018  (without credentials the ladder ends here)
            return Ladder(site, arguments.first, arguments.yes_up_to, record, lab).climb()
    except GpuctlError as error:
        print(f"aws-smoke: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("aws-smoke: interrupted; nothing was rented", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    steps = "; ".join(f"{step.number}: {step.title}" for step in STEPS)
    parser = argparse.ArgumentParser(
        prog="scripts/aws-smoke",
        description=f"Try an AWS account for the first time, step by step. {steps}. Each step is"
        " asked for with its price, removes what it rents, and is recorded.",
    )
    numbers = range(1, len(STEPS) + 1)
    parser.add_argument(
        "--from", dest="first", type=int, choices=numbers, default=1, help="the step to begin with"
    )
    parser.add_argument(
        "--yes-up-to", type=int, choices=numbers, default=0, help="the last step without a question"
    )
    parser.add_argument(
        "--record",
        type=Path,
        help=f"file of the record; by default {RECORD}, and lab-smoke.json of a lab",
    )
    parser.add_argument(
        "--against",
        type=Path,
        help="record of a lab to compare with; by default gpuctl's, and none in a lab",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--lab", action="store_true", help="rehearse in the lab, for nothing")
    place.add_argument("--lab-name", metavar="NAME", help="rehearse in the lab NAME")
    return parser


def _lab(arguments: argparse.Namespace) -> Places | None:
    if arguments.lab_name:
        return Places(arguments.lab_name)
    return Places(DEFAULT) if arguments.lab else None


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
