"""Progress when piped: one plain line per step, never the same line twice."""

import pytest

from cli.output import Output
from config.progress import Progress
from tests.terminals import terminal_as_stdout


def test_piped_progress_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Output().progress() as view:
        view.report(Progress("boot", "node0", "start"))
        view.report(Progress("boot", "node0", "running", "console read"))
        view.report(Progress("boot", "node0", "running", "console read"))
        view.report(Progress("boot", "node0", "done", seconds=65))
        view.report(Progress("boot", "node1", "failed", "powered off", seconds=2))
    assert capsys.readouterr().out == (
        "boot: node0: start\n"
        "boot: node0: running (console read)\n"
        "boot: node0: done in 1m 05s\n"
        "boot: node1: failed (powered off) in 2s\n"
    )


def test_with_json_progress_leaves_stdout_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with Output(as_json=True).progress() as view:
        view.report(Progress("boot", "node0", "start"))
    assert capsys.readouterr().out == ""


def test_announcement_goes_to_stderr_also_without_progress(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Output(is_quiet=True).progress() as view:
        view.note("not shown")
        view.announce("run train-1a2b3c, the newest")
    assert capsys.readouterr() == ("", "gpuctl: run train-1a2b3c, the newest\n")


def test_warning_during_live_progress_goes_to_a_stderr_that_is_a_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with terminal_as_stdout(), Output().progress() as view:
        view.report(Progress("code", "node0", "start"))
        view.warn("node1 is slow")
    assert capsys.readouterr().err == "gpuctl: warning: node1 is slow\n"
