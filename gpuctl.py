"""The command's door: makes sure that the rooms behind it are its own, then opens `cli`.

The rooms are top-level packages with plain names (`config`, `nodes`, …), see
docs/decisions/001-rooms-are-packages.md. Another package of such a name, or a folder on
PYTHONPATH, would be imported in their place and fail far from its cause.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

ROOMS = ("cli", "config", "engine", "infra", "lab", "nodes", "provision", "stacks")


def shadowed(home: Path) -> str | None:
    """The complaint about the first room that is not beside this file, or None."""
    for room in ROOMS:
        spec = find_spec(room)
        found = Path(spec.origin).resolve().parent if spec and spec.origin else None
        if found != home / room:
            return (
                f"gpuctl: error: its package '{room}' is hidden by {found or 'nothing at all'}; "
                "unset PYTHONPATH, and install gpuctl on its own (uv tool install, pipx)"
            )
    return None


def main() -> None:
    """The command has run; the process ends with its exit code."""
    complaint = shadowed(Path(__file__).resolve().parent)
    if complaint:
        sys.stderr.write(complaint + "\n")
        raise SystemExit(2)
    from cli.main import main as run

    run()


if __name__ == "__main__":
    main()
