"""The commands of Start and Do, run in the lab in the order of the pages.

Those that no test runs are in `NOT_RUN`, each with its reason.
"""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodes.keys import generate_pair
from tests.docs.pages import PAGES, Command, blocks, commands
from tests.e2e.conftest import ROOT, Gpuctl
from tests.evidence import note

pytestmark = pytest.mark.thorough

START = "docs/start/getting-started.md"
DO = (
    "docs/do/clusters.md",
    "docs/do/report.md",
    "docs/do/propose.md",
    "docs/do/dstack.md",
    "docs/do/runs.md",
    "docs/do/metrics.md",
    "docs/do/logs.md",
    "docs/do/detach.md",
    "docs/do/connect.md",
    "docs/do/code.md",
    "docs/do/health.md",
    "docs/do/lease.md",
    "docs/do/drift.md",
    "docs/do/cost.md",
    "docs/do/capacity.md",
    "docs/do/sharing-access.md",
    "docs/do/rehearse.md",
    "docs/do/gc.md",
)
"""Pages with commands that act on one cluster `demo`; the last one removes it."""

_PARSED = "tests/docs/test_commands.py runs or parses it"
NOT_RUN = {
    r"(make|git|cd|uv|aws|export|echo|scripts/aws-smoke)\b.*": _PARSED,
    r"gpuctl (--version|iam-policy|validate train).*": _PARSED,
    r"gpuctl (up stacks/p5|run stacks/nccl|doctor$|status$).*": "tests/e2e/test_main_job.py",
    r"gpuctl (--lab )?(bisect|lab fault (set|clear) slow|report nccl-tests bisect).*": (
        "tests/e2e/test_bisect.py"
    ),
    r"gpuctl (up lab7.yaml|(status|down|heal) lab7.*|run run.yaml --cluster lab7)": (
        "tests/hosts/test_own_machines.py"
    ),
    r"gpuctl run job.yaml.*": "tests/e2e/pair/test_foreign_files.py runs manifests",
    r"gpuctl (validate|run) task.yaml.*": "tests/e2e/pair/test_foreign_files.py runs tasks",
    r"gpuctl run train.dstack.yml --strict": "the same run as with --dry-run",
    r"gpuctl (up FILE|up cluster.yaml --(replace|for)).*": "another cluster, or machines once more",
    r"gpuctl down demo \[--id.*": "the down of the page about what is left over",
    r"gpuctl ssh demo \[node1\].*": "it needs a terminal",
    r"gpuctl ssh demo node0 curl.*": "the metrics are served during a run alone",
    r"gpuctl cp demo 'node\[0-3\].*": "it names four nodes",
    r"gpuctl top train.*": "the run has ended by then",
    r"gpuctl debug .*": "tests/e2e/pair/test_debug.py",
    r"gpuctl stop RUN": "the run has ended by then",
    r"gpuctl lab (stop|images).*": "the tests' lab stays up, with its images",
    r"gpuctl (validate|run) job.sbatch.*": "tests/e2e/pair/test_foreign_files.py",
    r"gpuctl --lab-name b .*": "tests/e2e/test_two_labs.py",
    r"gpuctl --lab (up|run) .*frameworks.*": "tests/e2e/test_modes.py",
}
"""Commands that this file does not run, as regular expressions, and why."""

ASKS = {"up", "down", "heal", "ssh-config"}
"""Commands that ask: the tests add --yes."""


def _all() -> Iterator[Command]:
    for page in PAGES:
        if page == "README.md" or page.startswith(("docs/start/", "docs/do/")):
            for block in blocks(page):
                yield from commands(block)


def _is_run(command: Command) -> bool:
    return not any(re.fullmatch(pattern, command.text) for pattern in NOT_RUN)


def test_every_command_is_run_or_has_a_reason() -> None:
    every = list(_all())
    unknown = [each.name for each in every if _is_run(each) and each.block.page not in (START, *DO)]
    assert unknown == []
    unused = [p for p in NOT_RUN if not any(re.fullmatch(p, each.text) for each in every)]
    assert unused == []
    assert sum(map(_is_run, every)) > 45


CODES = {"gpuctl down first": 2}
"""Exit codes other than 0: the run of the page has removed the cluster `first` already."""


class Reader:
    """Somebody who types a page's commands in a folder that has the files of its blocks."""

    def __init__(self, gpuctl: Gpuctl, folder: Path) -> None:
        self.gpuctl = gpuctl
        self.folder = folder
        self.words: dict[str, str] = {"CLUSTER": "demo", "FILE": "run.yaml"}

    def take_files(self, page: str) -> None:
        """Write the page's files: blocks with a name in their first line."""
        for block in blocks(page):
            name = block.text.partition("\n")[0].removeprefix("# ")
            if block.language == "yaml" and name.endswith(".yaml"):
                (self.folder / name).write_text(block.text + "\n")

    def type_all(self, page: str) -> None:
        """Run the page's commands in its order."""
        for block in blocks(page):
            for command in filter(_is_run, commands(block)):
                self.type(command.text, CODES.get(command.text, 0))

    def type(self, text: str, code: int = 0) -> str:
        """Run one command in the lab; return what it printed."""
        while (shorter := re.sub(r"\s*\[[^\[\]]*\]…?", "", text)) != text:
            text = shorter  # what a person may leave out
        words = shlex.split(text)[1:]
        words = [self.words.get(word, word) for word in words if word != "--lab"]
        if words[0] in ASKS and "--yes" not in words and "--for" not in words:
            words.append("--yes")
        if words[0] == "run":
            words.append("--no-image")
            words += [] if "--cluster" in words else ["--cluster", "demo"]
        arguments = words if words[0] == "lab" else ["--lab", *words]
        done = subprocess.run(
            self.gpuctl.words(*arguments),
            env=self.gpuctl.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=400,
            check=False,
        )
        note(f"$ {text}\n{done.stdout}{done.stderr}")
        assert done.returncode == code, f"{text}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def reader(gpuctl: Gpuctl, tmp_path: Path) -> Reader:
    return Reader(gpuctl, tmp_path)


@pytest.mark.lab
def test_getting_started(reader: Reader) -> None:
    reader.take_files(START)
    reader.type_all(START)
    assert reader.type("gpuctl status") == "No cluster exists.\n"


@pytest.mark.lab
def test_pages_about_tasks(reader: Reader) -> None:
    """One cluster of two nodes, on which the pages' commands act."""
    folder = reader.folder
    for page in DO:
        reader.take_files(page)
    demo = "name: demo\nnodes: 2\ninstance_type: p4d.24xlarge\nlifetime: {max: 8h}\n"
    (folder / "cluster.yaml").write_text(demo)
    stack = (ROOT / "stacks/nccl-tests.dstack.yaml").read_text()
    (folder / "train.dstack.yml").write_text(stack)
    hello = (ROOT / "stacks/hello.yaml").read_text()
    (folder / "run.yaml").write_text(hello.replace("name: hello", "name: train"))
    (folder / "ann.pub").write_text(generate_pair("ann@laptop")[1] + "\n")
    (folder / "data").mkdir()
    (folder / "data/part").write_text("1\n")
    small = "type: nccl-tests\nname: nccl-tests\nnodes: 2\nmax_bytes: 1M\n"
    (folder / "nccl.yaml").write_text(small)
    reader.type_all(DO[0])
    for old in ("nccl-tests-e54e00", "nccl-tests-4f2a1c"):
        reader.type("gpuctl run nccl.yaml")
        newest = reader.type("gpuctl ps -n 1 --json")
        match = re.search(r"nccl-tests-\w{6}", newest)
        assert match
        reader.words[old] = match[0]
    reader.words |= {"RUN": "train", "train-4f2a1c": "train"}
    reader.type("gpuctl exec demo -- touch /var/log/syslog")
    for page in DO[1:]:
        reader.type_all(page)
    assert reader.type("gpuctl status") == "No cluster exists.\n"
