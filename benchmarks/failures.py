"""How long it takes to notice a failure, and until nothing of the run is left: on two machines.

    sudo .venv/bin/python -m benchmarks.failures [--json] [--times 3]

The rows are those of docs/look-up/failures.md that need no machine of their own to die.
`noticed` are the
seconds from the failure to its event in the run's journal, `ended` those to the run's end, when no
process of it is left on any node: best of so many times.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from tests.engine.failure_rows import ROWS, show
from tests.engine.machines import two_machines


def main() -> None:
    """Print a table on stdout, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=3, help="the best of so many")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    arguments = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as name:
        folder = Path(name)
        with two_machines(folder) as there:
            for row in ROWS:
                shown = [show(row, there, folder / "runs") for _ in range(arguments.times)]
                noticed = [failure.noticed for failure in shown if failure.noticed is not None]
                found.append(
                    {
                        "row": row.name,
                        "code": shown[0].result.exit_code,
                        "reason": shown[0].result.reason,
                        "noticed": min(noticed) if noticed else None,
                        "ended": min(failure.ended for failure in shown),
                    }
                )
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for failure in found:
        seconds = failure["noticed"]
        shown_s = "" if seconds is None else f"{seconds:.2f}"
        print(
            f"{failure['row']:34} {failure['code']:4} {shown_s:>7} {failure['ended']:7.2f}"
            f"  {failure['reason']}"
        )


if __name__ == "__main__":
    main()
