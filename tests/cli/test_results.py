"""`gpuctl results` of several runs: compared, kept as baselines, as CSV."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.contract.head_events import FollowedFailure
from engine.record.history import History
from tests.cli.test_command import gpuctl
from tests.engine.analysis.test_comparison import table
from tests.engine.conftest import make_plan
from tests.engine.record.test_history import result
from tests.terminals import lines_on_terminal

pytestmark = pytest.mark.slow


def history(home: Path) -> History:
    return History(home / ".local/state/gpuctl/aws/runs")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two runs that are done, of which the second is slower in-place; and one without a table."""
    with history(tmp_path) as kept:
        for run_id, in_place in (("job-000001", 20.0), ("job-000002", 30.0), ("job-000003", None)):
            kept.begin(replace(make_plan(), run_id=run_id))
            if in_place:
                kept.keep_table(run_id, 0, table(10, in_place=in_place, nccl=f"2.{in_place:g}"))
            done = {"status": "done", "exit_code": 0, "reason": "", "first_failed_rank": None}
            kept.finish(result(run_id).model_copy(update=done))
    return tmp_path


COMPARED = """\
Before: run job-000001, done, 2026-11-20 19:00 UTC
After: run job-000002, done, 2026-11-20 19:00 UTC
Different NCCL: 2.20, then 2.30

all_reduce float sum
 size                before  after  before  after
bytes  half              us     us    GB/s   GB/s   change   noise
 1024  out-of-place    10.0   10.0  102.40  102.40   +0.0 %  10.0 %
 1024  in-place        20.0   30.0   51.20   34.13  -33.3 %  10.0 %  slower

Slower: 1, faster: 0, same within the noise: 1.
Noise is the spread of a run's repeats, at least 1 %; 10 % for a run without repeats.
"""


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_two_runs_are_compared(home: Path) -> None:
    done = gpuctl("results", "--compare", "job-000001", "job-000002", home=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert words(done.stdout) == words(COMPARED)
    document = json.loads(
        gpuctl("results", "--compare", "job-000001", "job-000002", "--json", home=home).stdout
    )
    assert [document[name] for name in ("slower", "faster", "same")] == [1, 0, 1]
    assert document["changes"][1]["mark"] == "slower"


def test_a_comparison_on_a_narrow_terminal_lacks_columns_in_its_order(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home / ".local/state"))

    def head(columns: int) -> str:
        compared = ("results", "--compare", "job-000001", "job-000002")
        lines = lines_on_terminal(*compared, columns=columns)
        return lines[lines.index("all_reduce float sum") + 2].strip()

    assert head(80).split() == ["bytes", "half", "us", "us", "GB/s", "GB/s", "change", "noise"]
    assert head(70).split() == ["bytes", "half", "us", "us", "GB/s", "GB/s", "change"]
    assert head(55).split() == ["bytes", "half", "GB/s", "GB/s", "change"]


def test_a_baseline_is_kept_by_name(home: Path) -> None:
    done = gpuctl("results", "job-000001", "--keep-baseline", "nccl-2.20", home=home)
    assert done.stdout == "Baseline nccl-2.20 is run job-000001.\n"
    done = gpuctl("results", "job-000002", "--baseline", "nccl-2.20", home=home)
    assert words(done.stdout) == words(COMPARED)
    assert (
        gpuctl("results", "job-000002", "--keep-baseline", "nccl-2.20", home=home).returncode == 0
    )
    done = gpuctl("results", "job-000002", "--baseline", "nccl-2.20", "--json", home=home)
    assert json.loads(done.stdout)["before"]["run_id"] == "job-000002"
    done = gpuctl("results", "--baseline", "2.21", home=home)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "gpuctl: error: there is no baseline 2.21; there are: nccl-2.20",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("job-000003", "--keep-baseline", "empty"),
            "run job-000003 printed no nccl-tests table: it cannot be a baseline; keep a run that"
            " is done and has tables; `gpuctl ps` lists the runs",
        ),
        (
            ("job-000001", "--keep-baseline", "a b"),
            "'a b' cannot be a baseline's name; use up to 63 letters, digits, dots, dashes and"
            " underscores; begin with a letter or digit",
        ),
        (
            ("--compare", "job-000001", "job-000003"),
            "run job-000003 printed no nccl-tests table; `gpuctl ps` lists other runs",
        ),
        (
            ("job-000001", "--compare", "job-000001", "job-000002"),
            "--compare names both runs; leave job-000001 out",
        ),
        (
            ("job-000001", "--csv", "--json"),
            "--csv and --json exclude each other; leave one of them out",
        ),
        (
            ("job-000001", "--baseline", "none"),
            "there is no baseline none; keep one with `gpuctl results RUN --keep-baseline NAME`",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    arguments: tuple[str, ...], message: str, home: Path
) -> None:
    done = gpuctl("results", *arguments, home=home)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gpuctl: error: {message}\n")


def test_tables_as_csv_have_the_figures_of_the_history(home: Path) -> None:
    done = gpuctl("results", "job-000001", "--csv", home=home)
    with history(home) as kept:
        (row,) = kept.tables("job-000001")[0].rows
    first, second = csv.DictReader(io.StringIO(done.stdout))
    assert (first["run"], first["collective"], first["nccl"]) == (
        "job-000001",
        "all_reduce",
        "2.20",
    )
    for line, half in ((first, row.out_of_place), (second, row.in_place)):
        assert half is not None
        assert float(line["time_us"]) == half.time_us
        assert float(line["busbw"]) == half.busbw
        assert (line["size"], line["wrong"], line["error"], line["hosts"]) == ("1024", "0", "", "")
    assert [first["half"], second["half"]] == ["out-of-place", "in-place"]


def test_failures_after_the_first_and_attempts_are_shown(home: Path) -> None:
    followed = (FollowedFailure(nodes=("node1", "node2"), text="killed by SIGKILL"),)
    with history(home) as kept:
        kept.begin(replace(make_plan(), run_id="job-000004"))
        failed = {"attempts": 2, "followed": followed}
        kept.finish(result("job-000004").model_copy(update=failed))
    done = gpuctl("results", "job-000004", home=home)
    ended = result("job-000004")
    assert done.stdout.splitlines()[:2] == [
        f"Run job-000004: failed after 2 attempts, exit code {ended.exit_code}: {ended.reason}",
        "Then node[1-2]: killed by SIGKILL",
    ]
    document = json.loads(gpuctl("results", "job-000004", "--json", home=home).stdout)
    assert document["followed"] == [{"nodes": ["node1", "node2"], "text": "killed by SIGKILL"}]
