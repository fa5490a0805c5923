"""Golden files: texts that a reviewer has read, compared with what the code makes now.

`python -m tests.golden` (`make golden`) renews those of all tests, or of the tests that its
arguments choose, and prints what changed, each change once. Nothing is renewed by hand: what
must never change is asserted beside the golden files (tests/engine/plan/test_launch_facts.py).
"""

import difflib
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RENEW = "GPUCTL_RENEW_GOLDEN"
"""A folder: golden files are renewed, and what they were and are is written there."""

TESTS = (
    "tests/cli/test_up_for.py::test_golden",
    "tests/formats/test_manifests.py::test_golden",
    "tests/engine/plan/test_modes.py::test_golden",
    "tests/infra/test_network.py::test_a_network_that_exists_is_used_and_left_as_it_was",
    "tests/infra/test_network.py::test_each_way_in_is_planned_made_and_removed",
    "tests/infra/test_network.py::test_the_layout_of_every_type_with_efa",
    "tests/infra/test_storage.py::test_each_shared_file_system_is_planned_made_and_removed",
    "tests/plans/test_plans.py::test_the_requests_of_a_launch_are_as_reviewed",
    "tests/plans/test_plans.py::test_what_is_planned_is_as_reviewed_and_accepted",
    "tests/provision/test_claim.py::test_the_request_for_a_claim_is_as_reviewed",
    "tests/provision/test_cloud_init.py::test_user_data_is_as_reviewed",
    "tests/provision/test_permissions.py::test_a_policy_is_as_reviewed",
)
MOST_LINES = 60


@dataclass(frozen=True)
class Renewed:
    """A golden file that was renewed; `before` is empty where there was none."""

    path: str
    before: str
    after: str

    def changes(self) -> Iterator[str]:
        """Yield each change as lines that begin with - and +."""
        before, after = self.before.splitlines(), self.after.splitlines()
        for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
            if kind != "equal":
                gone = [f"- {line}" for line in before[a:b]]
                yield "\n".join([*gone, *(f"+ {line}" for line in after[c:d])])


def check(path: Path, text: str) -> None:
    """Assert that the golden file at `path` has this text; renew it where that was asked for."""
    before = path.read_text() if path.exists() else ""
    if text == before:
        return
    name = str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name)
    if folder := os.environ.get(RENEW):
        kept = Renewed(name, before, text)
        (Path(folder) / f"{uuid.uuid4().hex}.json").write_text(json.dumps(asdict(kept)))
        path.write_text(text)
        return
    lines = difflib.unified_diff(
        before.splitlines(), text.splitlines(), name, "what the code makes", lineterm="", n=1
    )
    shown = "\n".join(list(lines)[:MOST_LINES])
    raise AssertionError(f"{name} is not what the code makes; if it is meant: make golden\n{shown}")


def summary(renewed: Iterable[Renewed]) -> list[str]:
    """Return what a reviewer reads: each change once, the most frequent first, and its files."""
    files: dict[str, list[str]] = defaultdict(list)
    paths = set()
    for one in sorted(renewed, key=lambda one: one.path):
        paths.add(one.path)
        for change in one.changes():
            if one.path not in files[change]:
                files[change].append(one.path)
    if not files:
        return ["No golden file changed."]
    lines = [f"{len(paths)} golden files changed, by {len(files)} changes:"]
    for change, where in sorted(files.items(), key=lambda item: (-len(item[1]), item[0])):
        others = f" and {len(where) - 1} more" if where[1:] else ""
        shown = change.splitlines()
        more = [f"  … {len(shown) - MOST_LINES} lines more"] if shown[MOST_LINES:] else []
        lines += ["", f"{where[0]}{others}", *(f"  {line}" for line in shown[:MOST_LINES]), *more]
    return lines


def main(words: list[str]) -> int:
    """Renew the golden files of the tests that pytest's words choose; return its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *(words or TESTS)],
            cwd=ROOT,
            env={**os.environ, RENEW: folder},
            check=False,
        )
        kept = [json.loads(file.read_text()) for file in Path(folder).iterdir()]
    sys.stdout.write("\n".join(["", *summary(Renewed(**one) for one in kept), ""]))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
