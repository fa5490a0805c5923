"""Commands that enter a run: streams, environment, status, other nodes, callers that leave."""

import ast
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.agent.link.units import STOP_GRACE_S
from engine.agent.node import exec_client
from engine.agent.node.container import Host
from engine.agent.node.exec_server import Entrance
from tests.engine.conftest import TOOLS, LocalCluster, make_plan

pytestmark = pytest.mark.slow

ODD = "two words  \"double\" 'single' $HOME `id` \\n\nsecond line\té😀;&|"
HOSTS = "10.213.1.10 node0\n10.213.1.11 node1\n"


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise TimeoutError("not within 10 s")


def runs(marker: str) -> bool:
    """Whether a process has `marker` among its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The run's folder of node0; node1's is beside it."""
    monkeypatch.setenv("PATH", f"{TOOLS}:{os.environ['PATH']}")
    entrances = []
    for rank, name in enumerate(("node0", "node1")):
        there = tmp_path / name
        there.mkdir()
        entrance = Entrance(there, Host(), HOSTS, rank, STOP_GRACE_S)
        entrance.open({**Host().environment(), "ODD": ODD, "NODE": name})
        entrances.append(entrance)
    yield tmp_path / "node0"
    for entrance in entrances:
        entrance.signal(signal.SIGKILL)
        entrance.close()
    assert [*tmp_path.glob("node*/*")] == []


def ssh(folder: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / "bin" / "ssh", *words],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        **options,
    )


@pytest.mark.parametrize("host", ["node0", "node1"])
def test_a_command_has_the_nodes_environment_and_the_callers_streams(
    folder: Path, host: str
) -> None:
    command = 'read line; printf \'%s|%s|%s\' "$line" $NODE "$ODD"; echo bad >&2; exit 7'
    done = ssh(folder, "-x", "-o", "BatchMode=yes", host, command, input="hello\n")
    assert done.stdout == f"hello|{host}|{ODD}"
    assert (done.stderr, done.returncode) == ("bad\n", 7)


def test_it_runs_at_home_in_a_session_of_its_own_with_nothing_of_the_caller(folder: Path) -> None:
    command = "pwd; echo ${MINE:-nothing}; ps -o sid= -p $$ | tr -d ' '; echo $$"
    home, mine, session, pid = ssh(
        folder, "node0", command, env={**os.environ, "MINE": "here"}
    ).stdout.split()
    assert (home, mine, session) == (str(Path.home()), "nothing", pid)


def test_words_are_joined_by_spaces_and_read_by_a_shell(folder: Path) -> None:
    done = ssh(folder, "root@10.213.1.11", "X='1  2';", "echo", '"$X"', "&&", "echo", "$NODE")
    assert done.stdout == "1  2\nnode1\n"


def test_a_signal_is_128_and_more(folder: Path) -> None:
    assert ssh(folder, "node0", "kill -KILL $$").returncode == 137
    assert ssh(folder, "node1", "kill -KILL $$").returncode == 137


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["10.0.0.9", "true"], "10.0.0.9 is not a node of the run node0"),
        (["node0"], "no command for node0 is given"),
        (["-x"], "no host is given"),
        (["-Z", "node0", "true"], "option -Z not recognized"),
    ],
)
def test_what_cannot_be_run_says_why_and_is_ssh_s_255(
    folder: Path, words: list[str], complaint: str
) -> None:
    done = ssh(folder, *words)
    assert (done.returncode, done.stderr) == (255, f"ssh of gpuctl: {complaint}\n")


@pytest.mark.parametrize(
    ("words", "host", "command"),
    [
        (["node1", "orted", "-mca", "ess", "env"], "node1", "orted -mca ess env"),
        (["-2", "-a", "-x", "-lroot", "node1", "hostname"], "node1", "hostname"),
        (["-q", "-x", "me@node1", "-p", "22", "echo", "-n"], "node1", "echo -n"),
        (["-o", "A=b", "--", "node1", "true", "--"], "node1", "true --"),
        (["node1", "--", "true"], "node1", "true"),
        (["node1", "true", "--"], "node1", "true --"),
    ],
)
def test_arguments_are_read_as_openssh_reads_them(
    words: list[str], host: str, command: str
) -> None:
    assert exec_client.parse(words) == (host, command)


def test_without_input_under_n(folder: Path) -> None:
    assert ssh(folder, "-n", "node0", "cat; echo end", input="never").stdout == "end\n"


@pytest.mark.parametrize("host", ["node0", "node1"])
def test_a_command_ends_when_its_caller_is_killed(folder: Path, host: str) -> None:
    marker = f"{os.getpid()}.25"
    caller = subprocess.Popen(
        [folder / "bin" / "ssh", host, f"trap 'exit 1' TERM; sleep {marker} & wait"],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_for(lambda: runs(marker))
    os.killpg(caller.pid, signal.SIGKILL)
    caller.wait()
    wait_for(lambda: not runs(marker))


@pytest.mark.parametrize("host", ["node0", "node1"])
def test_a_daemon_outlives_the_command_that_started_it(folder: Path, host: str) -> None:
    """As Open MPI's orted: its parent ends at once, and so does the remote agent."""
    marker = f"{os.getpid()}.75"
    daemon = f"setsid -f sleep {marker} </dev/null >/dev/null 2>&1"
    assert ssh(folder, host, daemon).returncode == 0
    assert runs(marker)
    pids = subprocess.run(["pgrep", "-f", marker], capture_output=True, text=True, check=True)
    for pid in map(int, pids.stdout.split()):
        os.kill(pid, signal.SIGKILL)


def test_with_env_lays_the_run_s_environment_over_the_caller_s(folder: Path) -> None:
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    done = subprocess.run(
        [folder / "bin" / "with-env", sys.executable, "-c", program],
        capture_output=True,
        env={"PATH": os.environ["PATH"], "MINE": "stays", "NODE": "is replaced"},
        check=True,
    )
    found = json.loads(done.stdout)
    assert (found["ODD"], found["NODE"], found["MINE"]) == (ODD, "node0", "stays")


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (["no-such-program"], 127, "no-such-program: No such file or directory"),
        (["/etc/passwd"], 126, "/etc/passwd: Permission denied"),
        ([], 125, "no command is given"),
    ],
)
def test_with_env_ends_as_env_does(
    folder: Path, words: list[str], status: int, complaint: str
) -> None:
    done = subprocess.run(
        [folder / "bin" / "with-env", *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (status, f"with-env: {complaint}\n")


def test_the_jobs_own_python_stands_not_in_the_way(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONHOME": str(tmp_path)}
    done = ssh(folder, "node0", "echo $NODE", env=environment, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("node0\n", "")


def test_there_is_a_bound(folder: Path) -> None:
    entrance = Entrance(folder.parent, Host(), HOSTS, 0, STOP_GRACE_S, at_once=1)
    entrance.open(Host().environment())
    marker = f"{os.getpid()}.5"
    first = subprocess.Popen([folder.parent / "bin" / "ssh", "node0", f"sleep {marker}"])
    wait_for(lambda: runs(marker))
    done = ssh(folder.parent, "node0", "true")
    assert (done.returncode, done.stderr) == (
        255,
        "ssh of gpuctl: this node has 1 commands already, no more are accepted\n",
    )
    entrance.signal(signal.SIGTERM)
    assert first.wait(60) == 143
    assert ssh(folder.parent, "node0", "true").returncode == 0
    entrance.close()


def test_requests_that_are_none_take_no_room(folder: Path) -> None:
    entrance = Entrance(folder.parent, Host(), HOSTS, 0, STOP_GRACE_S, at_once=1)
    entrance.open(Host().environment())
    for request in ({"do": "run"}, {"do": "run", "host": "node0", "command": "nul \0"}):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(folder.parent / exec_client.SOCKET))
            socket.send_fds(caller, [b"x"], [0, 1, 2])
            caller.sendall(json.dumps(request).encode() + b"\n")
            assert caller.recv(16) == b"255"
    assert ssh(folder.parent, "node0", "true").returncode == 0
    entrance.close()


def test_nothing_enters_a_run_that_has_ended(folder: Path) -> None:
    (folder / exec_client.SOCKET).rename(folder / "away")
    done = ssh(folder, "node0", "true")
    (folder / "away").rename(folder / exec_client.SOCKET)
    assert done.returncode == 255
    assert done.stderr.startswith("ssh of gpuctl: the run has ended here: ")


def test_every_python_of_the_nodes_can_read_the_agent() -> None:
    agent = Path(exec_client.__file__).parents[1]
    for path in agent.rglob("*.py"):
        oldest = (3, 6) if path.name == "exec_client.py" else (3, 9)
        ast.parse(path.read_text(), feature_version=oldest)
    text = (agent / "node/exec_client.py").read_text()
    assert "from __future__" not in text  # annotations: since 3.7


def test_a_run_reaches_its_other_node(cluster: LocalCluster) -> None:
    """As a launcher on the head does: two workers, each with its own entrance."""
    there = shlex.quote('echo "$WHAT on $DSTACK_NODE_RANK"')
    head = f"if [ $DSTACK_NODE_RANK = 0 ]; then {cluster.folder}/node0/bin/ssh node1 {there}"
    plan = make_plan(
        env={"WHAT": ODD},
        startup_order="workers-first",
        stop_criteria="master-done",
        commands=(f"{head}; else sleep infinity; fi",),
    )
    assert cluster.execute(plan).status == "done"
    assert cluster.output(0) == f"{ODD} on 1\n"


def test_what_has_entered_is_stopped_gracefully(cluster: LocalCluster, tmp_path: Path) -> None:
    """Node1's own job ends at once; the rank that node0 has started there gets its time."""
    saved, began = tmp_path / "saved", tmp_path / "began"
    polite = shlex.quote(
        f"trap 'sleep 1; touch {saved}; exit' TERM; touch {began}; sleep 1000 & wait"
    )
    head = f"setsid {cluster.folder}/node0/bin/ssh node1 {polite} &"
    until = f"until test -e {began}; do sleep 0.1; done"
    plan = make_plan(
        startup_order="workers-first",
        stop_criteria="master-done",
        commands=(
            f"if [ $DSTACK_NODE_RANK = 0 ]; then {head} {until}; else exec sleep infinity; fi",
        ),
    )
    assert cluster.execute(plan).status == "done"
    assert saved.exists()
