"""`gpuctl logs`: what a run printed, all of it or one rank's."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.render.log_view import Tail
from config.errors import InputError
from config.target import Target
from engine.agent.journal.lines import Line
from engine.contract.event import to_line
from engine.contract.head_events import DroppedOutput, OutputDropped
from engine.contract.worker_events import NodeReady, Output
from engine.record.history import History
from engine.record.journal_copy import JournalCopy
from tests.engine.conftest import make_plan


@pytest.fixture
def run_id(remembered: Target) -> str:
    """A run of two nodes that is over."""
    plan = make_plan()
    with History(remembered.runs) as history:
        history.begin(plan)
        history.mark_lost(plan.run_id, "for the test")
    record = JournalCopy(remembered.runs, plan.run_id)
    for rank, text in ((0, "one"), (1, "two"), (0, "three"), (1, "four")):
        record.append(to_line(NodeReady(time=1, rank=rank)))
        line = Output(time=1, rank=rank, stream="stdout", text=text, ends_line=True)
        record.append(to_line(line))
    record.close()
    return plan.run_id


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ([], ["[node0] one", "[node1] two", "[node0] three", "[node1] four"]),
        (["--rank", "0"], ["[node0] one", "[node0] three"]),
        (["--rank", "1"], ["[node1] two", "[node1] four"]),
        (["--rank", "1", "-f"], ["[node1] two", "[node1] four"]),
        (["--rank", "2"], []),
        (["--node", "node1"], ["[node1] two", "[node1] four"]),
        (["--node", "node[0-1]", "--rank", "0"], ["[node0] one", "[node0] three"]),
    ],
)
def test_one_rank_or_all(run_id: str, options: list[str], lines: list[str]) -> None:
    done = CliRunner().invoke(app, ["logs", run_id, *options])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == lines


@pytest.fixture
def printed(remembered: Target) -> Callable[..., list[str]]:
    """What `gpuctl logs` prints of a run of 16 nodes that is over, with these options."""
    plan = make_plan(nodes=16)
    now = time.time()
    with History(remembered.runs) as history:
        history.begin(plan)
        history.mark_lost(plan.run_id, "for the test")
    record = JournalCopy(remembered.runs, plan.run_id)
    for age, rank, text in (
        (3500, 1, "[rank9]: Traceback\n[rank12]:step"),
        (3000, 0, "start\nloss 3.0"),
        (3000, 9, "start"),
        (900, 9, "\x1b[31merror: lo\x1b[0mst"),
        (60, 15, "10%\r50%\r100%"),
        (1, 0, "loss 2.0\ndone"),
    ):
        line = Output(time=now - age, rank=rank, stream="stdout", text=text)
        record.append(to_line(line))
    gone = DroppedOutput(rank=0, size=5 << 20, since=1795168920.0, until=now - 30)
    gap = OutputDropped(time=now - 30, start=record.offset, end=record.offset + 9, ranks=(gone,))
    record.append(to_line(gap))
    record.close()

    def print_logs(*options: str) -> list[str]:
        done = CliRunner().invoke(app, ["logs", plan.run_id, *options])
        if done.exception is not None:
            raise done.exception
        return [line.partition(" from ")[0] for line in done.stdout.splitlines()]

    return print_logs


GAP = "[node0]  … 5.0 MiB of output"


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (
            "--rank 9,15",
            [
                "[rank 9] Traceback",
                "[node9]  start",
                "[node9]  \x1b[31merror: lo\x1b[0mst\x1b[0m",
                "[node15] 100%",
                GAP,
            ],
        ),
        ("--rank 12", ["[rank 12] step", GAP]),
        ("--rank 1", [GAP]),
        ("--node node1", ["[rank 9] Traceback", "[rank 12] step"]),
        (r"--grep ^step|^\[rank9\]:", ["[rank 9] Traceback", "[rank 12] step", GAP]),
        ("--rank 0-8 --tail 3", ["[node0]  loss 2.0", "[node0]  done", GAP]),
        ("--since 2m", ["[node15] 100%", "[node0]  loss 2.0", "[node0]  done", GAP]),
        (
            "--grep lo[s]",
            [
                "[node0]  loss 3.0",
                "[node9]  \x1b[31merror: lo\x1b[0mst\x1b[0m",
                "[node0]  loss 2.0",
                GAP,
            ],
        ),
        ("--grep ^start --fold", ["node[0,9] start", GAP]),
        ("--tail 0", []),
    ],
)
def test_lines_are_chosen(
    printed: Callable[..., list[str]], options: str, lines: list[str]
) -> None:
    assert printed(*options.split()) == lines


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--rank", "0,x"),
            "--rank 0,x: `x` is no rank; write numbers and ranges: --rank 0,8-15",
        ),
        (
            ("--rank", "9-2"),
            "--rank 9-2: `9-2` is no rank; write numbers and ranges: --rank 0,8-15",
        ),
        (
            ("--since", "10"),
            "--since is '10': it must be a whole number (at most 6 digits) and a unit: s, m, h or d"
            " (30m, 8h); write 10m or 2h",
        ),
        (
            ("--grep", "("),
            "--grep (: missing ), unterminated subpattern at position 0; write a regular"
            " expression of Python, in quotes",
        ),
    ],
)
def test_wrong_options_are_named(
    printed: Callable[..., list[str]], options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError) as wrong:
        printed(*options)
    assert str(wrong.value) == message


def test_the_last_lines_and_then_all_that_follow() -> None:
    shown: list[str] = []
    tail = Tail(2, lambda lines: shown.extend(line.text for line in lines))

    def add(text: str, at: float) -> None:
        tail.add([Line(at, 0, "stdout", text)])

    for text in "abc":
        add(text, 1.0)
    assert shown == []
    add("new", time.time() + 9)
    assert shown == ["c", "new"]
    add("newer", time.time() + 9)
    assert shown == ["c", "new", "newer"]


def test_a_quiet_run_shows_its_last_lines() -> None:
    async def run() -> None:
        shown = asyncio.Event()
        Tail(1, lambda lines: shown.set()).add([Line(1.0, 0, "stdout", "old")])
        async with asyncio.timeout(30):
            await shown.wait()

    asyncio.run(run())


def test_without_a_name_the_newest_run_is_meant(run_id: str) -> None:
    for command in ("logs", "results"):
        done = CliRunner().invoke(app, [command])
        assert done.exit_code == 0, done.output
        assert done.stderr.splitlines()[0] == f"gpuctl: run {run_id}, the newest"
    done = CliRunner().invoke(app, ["results"])
    assert done.stdout.splitlines()[0] == f"Run {run_id}: failed, exit code 125: for the test"


@pytest.mark.parametrize("command", ["logs", "results"])
def test_without_any_run_that_is_said(command: str, remembered: Target) -> None:
    done = CliRunner().invoke(app, [command])
    assert str(done.exception) == "no run was started yet; start one with `gpuctl run FILE`"


def test_json_is_an_object_per_line(run_id: str) -> None:
    done = CliRunner().invoke(app, ["logs", run_id, "--rank", "1", "--json"])
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"time": 1.0, "rank": 1, "stream": "stdout", "text": "two", "node": "node1"},
        {"time": 1.0, "rank": 1, "stream": "stdout", "text": "four", "node": "node1"},
    ]
    missing = f"the output of run {run_id} may be incomplete: for the test"
    assert done.stderr == f"gpuctl: {missing}\n"


def test_prefixes_have_a_colour_where_it_is_wanted(
    run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    first = CliRunner().invoke(app, ["logs", run_id]).stdout.splitlines()[0]
    assert first == "\033[36m[node0] \033[0mone"
    first = CliRunner().invoke(app, ["logs", run_id, "--no-color"]).stdout.splitlines()[0]
    assert first == "[node0] one"


def test_ps_lists_the_newest_runs_alone(remembered: Target) -> None:
    with History(remembered.runs) as history:
        for number in range(3):
            history.begin(replace(make_plan(), run_id=f"job-00000{number}"))
            history.mark_lost(f"job-00000{number}", "for the test")
        history.mark_attempt("job-000001", 3)
    done = CliRunner().invoke(app, ["ps", "-n", "2"])
    head, *rows = done.stdout.splitlines()
    assert (
        head
        == "RUN         CLUSTER  NODES  STATUS  ATTEMPTS  EXIT  COST  STARTED              HEARD"
    )
    assert [row.split()[:5] for row in rows] == [
        ["job-000002", "demo", "2", "failed", "1"],
        ["job-000001", "demo", "2", "failed", "3"],
    ]
    assert [
        run["run_id"] for run in json.loads(CliRunner().invoke(app, ["ps", "--json"]).stdout)
    ] == [
        "job-000002",
        "job-000001",
        "job-000000",
    ]
