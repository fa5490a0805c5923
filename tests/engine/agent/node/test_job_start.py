"""Jobs that cannot be started, and what a job's environment has by default; real agents."""

from pathlib import Path

import pytest

from engine.agent.node.worker import start_failure
from engine.contract.head_events import NodeLost
from engine.contract.worker_events import NodeExited
from tests.engine.conftest import LocalCluster, make_plan

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("env", "code", "reason"),
    [
        (
            {"PATH": "/opt/x:$PATH"},
            127,
            "bash cannot be started: no folder of PATH has it (PATH is /opt/x:$PATH); no"
            " shell reads `env`: write ${PATH} for the value on the node",
        ),
        (
            {"PATH": "/opt/x"},
            127,
            "bash cannot be started: no folder of PATH has it (PATH is /opt/x)",
        ),
        (
            {"HOME": "/nonexistent/home"},
            126,
            "the job cannot start in /nonexistent/home: No such file or directory",
        ),
    ],
)
def test_a_job_that_cannot_be_started_has_failed_on_a_node_that_lives(
    cluster: LocalCluster, env: dict[str, str], code: int, reason: str
) -> None:
    verdict = cluster.execute(make_plan(nodes=1, env=env))
    assert verdict.reason == f"node0: exited with {code}: {reason}"
    assert (verdict.status, verdict.exit_code, verdict.cause) == ("failed", code, "exit-code")
    assert [e.exit_code for e in cluster.events() if isinstance(e, NodeExited)] == [code]
    assert not [e for e in cluster.events() if isinstance(e, NodeLost)]


def test_a_program_that_may_not_be_executed_has_status_126(cluster: LocalCluster) -> None:
    programs = cluster.folder / "programs"
    programs.mkdir()
    (programs / "bash").write_text("no program")
    verdict = cluster.execute(make_plan(nodes=1, env={"PATH": str(programs)}))
    expected = "node0: exited with 126: bash cannot be started: Permission denied"
    assert verdict.reason == expected


def test_an_environment_that_is_too_long_has_status_126(cluster: LocalCluster) -> None:
    """Of a secret, only the node knows the length."""
    plan = make_plan(nodes=1, env={"LIST": {"secret": "LIST"}})
    expected = "node0: exited with 126: bash cannot be started: Argument list too long"
    assert cluster.execute(plan, {"LIST": "x" * 140_000}).reason == expected


def test_the_reason_shows_no_secret(cluster: LocalCluster) -> None:
    plan = make_plan(nodes=1, env={"PATH": {"secret": "TOOLS"}})
    assert cluster.execute(plan, {"TOOLS": "/opt/geheim-0123"}).reason == (
        "node0: exited with 127: bash cannot be started: no folder of PATH has it (PATH is ***)"
    )


def test_a_variable_may_refer_to_a_secret_of_the_run(cluster: LocalCluster) -> None:
    env = {"AUTH": "Bearer ${TOKEN}", "TOKEN": {"secret": "TOKEN"}}
    plan = make_plan(nodes=1, env=env, commands=('echo "${#AUTH} $AUTH"',))
    cluster.execute(plan, {"TOKEN": "geheim-0123"})
    assert cluster.output(0) == "18 Bearer ***\n"


def test_a_value_that_no_program_can_get_is_named() -> None:
    code, text = start_failure(ValueError("embedded null byte"), {})
    assert (code, text) == (126, "bash cannot be started: embedded null byte")


TALK = """\
python3 - <<'END'
import time
for turn in range(8):
    print("turn", turn)
    time.sleep(0.5)
END
"""


def test_a_python_that_prints_is_not_silent(cluster: LocalCluster) -> None:
    plan = make_plan(nodes=1, no_output_timeout="2s", commands=(TALK,))
    assert cluster.execute(plan).status == "done"
    assert cluster.output(0) == "".join(f"turn {turn}\n" for turn in range(8))


def test_the_last_lines_of_a_python_that_is_killed_are_kept(cluster: LocalCluster) -> None:
    code = "import os; print('the last line'); os.kill(os.getpid(), 9)"
    assert cluster.execute(make_plan(nodes=1, commands=(f'python3 -c "{code}"',))).exit_code == 137
    assert "the last line\n" in cluster.output(0)


@pytest.mark.parametrize("value", ["0", ""])
def test_a_run_file_may_have_the_output_of_python_buffered(
    cluster: LocalCluster, value: str
) -> None:
    plan = make_plan(
        nodes=1,
        env={"PYTHONUNBUFFERED": value},
        commands=("python3 -c 'import sys; print(sys.stdout.write_through)'",),
    )
    cluster.execute(plan)
    assert cluster.output(0) == "False\n"


def test_a_login_of_the_node_may_have_the_output_of_python_buffered(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".profile").write_text("export PYTHONUNBUFFERED=0\n")
    cluster.execute(make_plan(nodes=1, commands=("echo unbuffered: $PYTHONUNBUFFERED",)))
    assert cluster.output(0) == "unbuffered: 0\n"
