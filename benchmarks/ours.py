"""gpuctl's `plan` or `up` in a process of its own: what `benchmarks.fleet` compares.

    python -m benchmarks.ours plan|up CLUSTER.yaml TARGET.json

Nothing boots: `up` is everything but waiting for the nodes.
"""

import json
import sys
from pathlib import Path

from cli.render.plan import plan_lines
from config.loading.load import load_cluster
from config.progress import silent
from config.target import Target
from provision import up
from tests.provision.unbooted import nothing_boots


def main() -> None:
    """Print the plan, and with `up` carry it out."""
    what, file, target_file = sys.argv[1:]
    fields = json.loads(Path(target_file).read_text())
    target = Target(**{**fields, "state": Path(fields["state"])})
    planned = up.plan(load_cluster(Path(file)), target, silent)
    print("\n".join(plan_lines(planned)))
    if what == "up":
        up.up(planned, target, silent, boot=nothing_boots)


if __name__ == "__main__":
    main()
