"""Take each action of `gpuctl iam-policy` away: `python -m tests.permissions [ACTION…]`."""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from provision.permissions.actions import needed
from tests.infra.region import region
from tests.permissions.denied import Denied


def main(words: list[str] | None = None) -> int:
    """Print what happens without each of the actions; return 0 if something names every one."""
    parser = argparse.ArgumentParser(prog="python -m tests.permissions", description=__doc__)
    parser.add_argument("actions", nargs="*", help="by default all")
    actions = parser.parse_args(words).actions or sorted(needed())
    verdicts = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="gpuctl-permissions-") as folder:
        state = Path(folder)
        (state / "requests").mkdir()
        with region(state) as here:
            denied = Denied(here)
            for action in actions:
                found = denied.outcome(action)
                verdicts[found.verdict] += 1
                print(found, flush=True)
                if found.verdict == "NOT NAMED":
                    print(*(f"  {text}" for text in found.texts), sep="\n", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    return 0 if verdicts.total() == verdicts["named"] else 1


if __name__ == "__main__":
    sys.exit(main())
