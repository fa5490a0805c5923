"""What of a command's words reaches stdout and stderr: text, JSON, quiet, colours, questions."""

import io
import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.output import Output
from cli.render.run import RunView, verdict
from cli.render.text_table import table_lines
from config.errors import InputError
from config.progress import Progress
from engine.contract.head_events import FollowedFailure
from engine.contract.worker_events import Output as Line
from engine.record.result import RunResult
from tests.cli.test_command import COMMAND, ROOT, gpuctl
from tests.engine.bare_events import STARTED
from tests.engine.conftest import make_plan
from tests.interrupts import INTERRUPTIBLE
from tests.terminals import terminal_as_stdout

pytestmark = pytest.mark.slow


def test_a_document_is_all_of_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=True)
    with out.progress() as view:
        view.report(Progress("up", "node0", "running"))
    out.say("part of a result")
    out.note("on the way")
    out.warn("odd")
    out.show({"a": 1}, ["never"])
    seen = capsys.readouterr()
    assert seen.out == '{\n  "a": 1\n}\n'
    assert seen.err == "up: node0: running\ngpuctl: warning: odd\n"


class OtherThread(io.StringIO):
    """A stream on which another thread prints after each write."""

    def write(self, text: str) -> int:
        return super().write(text) + super().write("other\n" if text else "")


def test_a_line_stays_whole_beside_another_thread() -> None:
    """As the line of an attempt that starts beside that of the nodes which are ready again."""
    said, warned = OtherThread(), OtherThread()
    with redirect_stdout(said), redirect_stderr(warned):
        out = Output()
        out.note("-- attempt 2 starts")
        out.record("{}")
        out.show({}, ["a", "b"])
        with out.progress() as view:
            view.report(Progress("up", "node0", "running"))
        Output(as_json=True).show({}, [])
        out.warn("odd")
    lines = ("-- attempt 2 starts", "{}", "a\nb", "up: node0: running", "{}")
    assert said.getvalue() == "".join(f"{line}\nother\n" for line in lines)
    assert warned.getvalue() == "gpuctl: warning: odd\nother\n"


def test_quiet_leaves_out_progress_alone(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(is_quiet=True)
    with out.progress() as view:
        view.report(Progress("up", "node0", "running"))
    out.note("on the way")
    out.say("part")
    out.show({}, ["of", "a result"])
    out.warn("odd")
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("part\nof\na result\n", "gpuctl: warning: odd\n")


def test_commands_of_gpuctls_own_words_have_the_targets_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output(program="gpuctl --lab --region r").say("`gpuctl gc --region s`, `gpuctl gc`")
    out = Output(program="gpuctl --lab-name b --backend s3://ours")
    out.say("`gpuctl down demo` ends the cost")
    out.show({}, ["`gpuctl status` shows it, `gpuctl lab stop` and `gpuctl` are no such commands"])
    out.pass_on("a job printed `gpuctl down demo`")
    assert capsys.readouterr().out == (
        "`gpuctl --lab gc --region s`, `gpuctl --lab --region r gc`\n"
        "`gpuctl --lab-name b --backend s3://ours down demo` ends the cost\n"
        "`gpuctl --lab-name b --backend s3://ours status` shows it, `gpuctl lab stop` and"
        " `gpuctl` are no such commands\n"
        "a job printed `gpuctl down demo`\n"
    )


@pytest.mark.parametrize(("as_json", "events"), [(False, ""), (True, "")])
def test_a_quiet_run_shows_output_and_verdict(
    as_json: bool, events: str, capsys: pytest.CaptureFixture[str]
) -> None:
    view = RunView(make_plan(), Output(as_json=as_json, is_quiet=True))
    view.event(replace(STARTED, time=1.0))
    view.event(Line(time=1, rank=0, stream="stdout", text="hello"))
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("" if as_json else "[node0] hello\n", events)


def test_a_failed_run_ends_with_its_reason_and_what_followed() -> None:
    result = RunResult(
        run_id="job-000001",
        status="failed",
        exit_code=137,
        first_failed_rank=3,
        first_failed_node="node3",
        reason="node3: killed by SIGKILL (137)",
        last_lines=("loading",),
        followed=(FollowedFailure(nodes=("node0", "node1", "node2"), text="exited with 1"),),
        started=datetime(2026, 11, 23, 12, 0, 0, tzinfo=UTC),
        ended=datetime(2026, 11, 23, 12, 0, 2, tzinfo=UTC),
    )
    assert verdict(result) == [
        "Run job-000001: failed in 2.0s, exit code 137: node3: killed by SIGKILL (137)",
        "Then node[0-2]: exited with 1",
        "Last lines of node3:",
        "  loading",
    ]


@pytest.mark.parametrize(
    ("environment", "out", "colored"),
    [
        ({}, Output(), False),
        ({"FORCE_COLOR": "1"}, Output(), True),
        ({"FORCE_COLOR": ""}, Output(), False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, Output(), False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, Output(), True),
        ({"FORCE_COLOR": "1"}, Output(no_color=True), False),
        ({"FORCE_COLOR": "1"}, Output(as_json=True), False),
        ({"CLICOLOR_FORCE": "1"}, Output(), True),
        ({"CLICOLOR_FORCE": "0"}, Output(), False),
        ({"CLICOLOR_FORCE": "1", "CLICOLOR": "0", "TERM": "dumb"}, Output(), True),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, Output(), False),
    ],
)
def test_colours_are_chosen_in_one_place(
    environment: dict[str, str],
    out: Output,
    colored: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    RunView(make_plan(), out).event(Line(time=1, rank=0, stream="stdout", text="hello"))
    line = capsys.readouterr().out
    if not out.as_json:
        assert line == ("\033[36m[node0] \033[0mhello\n" if colored else "[node0] hello\n")


@pytest.mark.parametrize(
    ("environment", "colored"),
    [({}, True), ({"CLICOLOR": "1"}, True), ({"CLICOLOR": "0"}, False), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_is_coloured_unless_it_is_dumb_or_the_person_says_no(
    environment: dict[str, str], colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with terminal_as_stdout():
        assert Output().has_color is colored


def test_a_dumb_terminal_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with terminal_as_stdout() as screen:
        view = RunView(make_plan(), Output())
        view.event(Line(time=1, rank=0, stream="stdout", text="50%", ends_line=False))
        assert screen() == ""  # no state is drawn in the last row
        with pytest.raises(InputError) as caught:
            Output().watch(lambda: [])
    assert str(caught.value) == ("--watch needs a terminal; leave it out, and repeat the command")


def test_no_colour_takes_those_of_jobs_too(capsys: pytest.CaptureFixture[str]) -> None:
    for out in (Output(), Output(no_color=True)):
        out.say("\x1b[1;31mred\x1b[0m\x1b[2J")
    assert capsys.readouterr().out == "\x1b[1;31mred\x1b[0m^[[2J\nred^[[2J\n"


@pytest.mark.parametrize(
    ("answer", "is_yes"), [("y\n", True), ("YES\n", True), ("n\n", False), ("", False)]
)
def test_a_question_is_on_stderr(
    answer: str,
    is_yes: bool,
    type_in: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    type_in(answer)
    out = Output(as_json=True)
    if is_yes:
        out.confirm("Remove \x1b]it?")
    else:
        with pytest.raises(InputError, match=r"^nothing was done; answer y to go on$"):
            out.confirm("Remove \x1b]it?")
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", "Remove ^[]it? [y/N]: ")


def test_without_a_terminal_a_question_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    for words in (("down", "demo"), ("--json", "down", "demo"), ("down", "demo", "--quiet")):
        done = gpuctl("--region", "us-east-1", *words, home=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "gpuctl: error: there is no terminal to ask on: Remove cluster demo and everything in"
            " it?; add --yes if that is what you want\n"
        )


def test_validate_has_a_document(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("type: task\nname: hello\ncommands: [x]\n")
    bad.write_text("type: task\nname: hello\ncommands: [x]\nnodes: 0\n")
    done = gpuctl("validate", "--json", str(good), str(bad), home=tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    assert json.loads(done.stdout) == [
        {"file": str(good), "ok": True, "complaints": []},
        {
            "file": str(bad),
            "ok": False,
            "complaints": [
                {
                    "file": str(bad),
                    "line": 4,
                    "column": 8,
                    "code": "E202",
                    "message": "'nodes' is 0, below 1",
                    "hint": "use 1 to 512",
                    "severity": "error",
                }
            ],
        },
    ]
    assert gpuctl("validate", str(good), "--json", home=tmp_path).returncode == 0


ROWS = [
    ("nccl-tests-20261122-101500", "a-cluster-with-a-long-name", "64", "done"),
    ("hello", "demo", "2", "failed"),
]


def test_a_table_in_a_pipe_has_a_line_for_each_row() -> None:
    assert table_lines(("RUN", "CLUSTER", "NODES", "STATUS"), ROWS, right=("NODES",)) == [
        "RUN                         CLUSTER                     NODES  STATUS",
        "nccl-tests-20261122-101500  a-cluster-with-a-long-name     64  done",
        "hello                       demo                            2  failed",
    ]


@pytest.mark.parametrize("width", [80, 60, 40, 24])
def test_a_narrow_table_wraps_and_cuts_nothing_off(width: int) -> None:
    lines = table_lines(("RUN", "CLUSTER", "NODES", "STATUS"), ROWS, width, right=("NODES",))
    assert max(map(len, lines)) <= width
    letters = sorted("".join(cell for row in ROWS for cell in row) + "RUNCLUSTERNODESSTATUS")
    assert sorted("".join(lines).replace(" ", "")) == letters


@pytest.mark.parametrize(
    ("width", "head"),
    [
        (80, "RUN                         CLUSTER                     NODES  STATUS"),
        (66, "RUN                         CLUSTER                     STATUS"),
        (40, "RUN                         STATUS"),
    ],
)
def test_a_narrow_table_lacks_columns_in_the_stated_order(width: int, head: str) -> None:
    columns = ("RUN", "CLUSTER", "NODES", "STATUS")
    lines = table_lines(columns, ROWS, width, right=("NODES",), drop=("NODES", "CLUSTER"))
    assert lines[0] == head
    assert len(lines) == 3
    assert max(map(len, lines)) <= width


def test_a_tables_cells_are_text() -> None:
    assert table_lines(("N",), [("[red]x[/red] \x1b[31m:smile:\x1b[2J",)])[1] == (
        "[red]x[/red] :smile:^[[2J"
    )


def test_a_terminals_table_fits_it(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COLUMNS": "50"}
    try:
        done = subprocess.run(
            [str(COMMAND), "templates"], cwd=ROOT, env=environment,
            stdin=subprocess.DEVNULL, stdout=slave, check=False,
        )  # fmt: skip
        os.close(slave)
        shown = b""
        try:
            while block := os.read(master, 65536):
                shown += block
        except OSError:  # Linux: all of it was read, and nobody writes any more
            pass
    finally:
        os.close(master)
    lines = shown.decode().splitlines()
    assert done.returncode == 0
    assert lines[0].split() == ["TEMPLATE", "TYPE", "SUMMARY"]
    assert max(map(len, lines)) <= 50
    assert len(lines) > len(gpuctl("templates", home=tmp_path).stdout.splitlines())


def test_a_watched_table_is_drawn_again_until_ctrl_c(tmp_path: Path) -> None:
    person, program = pty.openpty()
    environment = os.environ | {"HOME": str(tmp_path), "COLUMNS": "80", "LINES": "24"}
    command = [*INTERRUPTIBLE, str(COMMAND), "ps", "--watch"]
    with subprocess.Popen(command, stdout=program, env=environment) as process:
        os.close(program)
        text = b""
        while text.count(b"No run yet.") < 2:
            text += os.read(person, 1000)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    os.close(person)
    assert text == b"\033[H\033[2JNo run yet.\r\n" * 2


def test_watch_needs_a_terminal(tmp_path: Path) -> None:
    done = gpuctl("ps", "--watch", home=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "gpuctl: error: --watch needs a terminal; leave it out, and repeat the command\n",
    )
