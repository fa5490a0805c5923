"""gpuctl's infra in a process of its own, to be interrupted: up or down of `demo`."""

import json
import sys
from pathlib import Path

from config.errors import GpuctlError
from config.progress import Progress
from config.target import Target
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from tests.infra.region import resolved


def main() -> None:
    what, engine, target = sys.argv[1:]
    fields = json.loads(target)
    there = Target(**{**fields, "state": Path(fields["state"])})
    stack = Stack("demo", there, Engine(Path(engine), "3.258.0", "path"))
    try:
        if what == "up":
            stack.up(resolved(there), say)
        else:
            stack.destroy(say)
    except GpuctlError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")


def say(step: Progress) -> None:
    sys.stdout.write(f"{step.subject} {step.state}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
