"""`gpuctl exec CLUSTER -- CMD` as a process: what it does, and what it imports."""

import contextlib
import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.target import Target
from nodes import dial
from tests.cli.conftest import remember
from tests.nodes.conftest import Site, site  # noqa: F401  a fixture

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SHOW_MODULES = """\
import json, sys
import gpuctl
try:
    gpuctl.main()
except SystemExit as end:
    code = end.code
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


@pytest.fixture
def cluster(site: Site, tmp_path: Path) -> Iterator[Site]:  # noqa: F811
    """The site as the cluster `demo` of a state folder."""
    state = Target("aws", "us-east-1", tmp_path / "state/gpuctl/aws")
    there = remember(site.inventory, state)
    for name in ("id_ed25519", "known_hosts"):
        shutil.copy2(site.inventory.folder / name, there.folder / name)
    yield Site(site.bastion, site.nodes, there)
    dial.end(str(there.folder))


def environment(home: Path) -> dict[str, str]:
    return os.environ | {"XDG_STATE_HOME": str(home / "state")}


def gpuctl(home: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "gpuctl", *arguments],
        cwd=ROOT, env=environment(home), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def modules(home: Path, *arguments: str) -> tuple[int, set[str]]:
    """The exit code of the command, and the top-level modules that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", SHOW_MODULES, *arguments],
        cwd=ROOT, env=environment(home), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    code, names = json.loads(done.stderr.splitlines()[-1])
    return code, {name.partition(".")[0] for name in names}


def test_equal_answers_are_shown_once(cluster: Site, tmp_path: Path) -> None:
    assert gpuctl(tmp_path, "exec", "demo", "--", "echo hi | cat; exit 3") == (
        3, "--- node[0-1]: exit code 3\nhi\n", "",
    )  # fmt: skip
    assert gpuctl(tmp_path, "exec", "demo", "echo", "a b") == (0, "--- node[0-1]\na b\n", "")


def test_a_node_out_of_reach_has_255_and_says_why(cluster: Site, tmp_path: Path) -> None:
    cluster.nodes[1].stop()
    code, shown, complaints = gpuctl(tmp_path, "exec", "demo", "--", "echo hi")
    assert (code, complaints) == (255, "")
    assert shown.startswith(
        "--- node0\nhi\n--- node1: exit code 255\n"
        "node1 (127.0.0.1) cannot be reached from the bastion: "
    )


def test_a_bastion_out_of_reach_is_one_error(cluster: Site, tmp_path: Path) -> None:
    cluster.bastion.stop()
    code, shown, complaints = gpuctl(tmp_path, "exec", "demo", "--", "true")
    assert (code, shown) == (1, "")
    assert complaints.startswith(
        "gpuctl: error: the bastion (127.0.0.1) cannot be reached: Connection refused; "
    )


def test_a_changed_host_key_is_an_error_on_that_node(cluster: Site, tmp_path: Path) -> None:
    assert gpuctl(tmp_path, "exec", "demo", "--", "true")[0] == 0
    known = cluster.inventory.folder / "known_hosts"
    other = cluster.nodes[0].host_key
    known.write_text(known.read_text().replace(cluster.nodes[1].host_key, other))
    code, shown, _ = gpuctl(tmp_path, "exec", "demo", "--", "true")
    assert code == 255
    assert "node1 (127.0.0.1) shows a host key that is not the pinned one; " in shown


def test_ctrl_c_ends_it_with_130(cluster: Site, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with subprocess.Popen(
        [sys.executable, "-m", "gpuctl", "exec", "demo", "--", f"touch {begun}; sleep 60"],
        cwd=ROOT, env=environment(tmp_path), stderr=subprocess.PIPE, text=True,
    ) as command:  # fmt: skip
        for _ in range(600):
            if begun.exists():
                break
            time.sleep(0.05)
        command.send_signal(signal.SIGINT)
        assert command.wait(30) == 130
        assert command.stderr is not None
        assert "gpuctl: interrupted; `gpuctl status` shows what exists\n" in command.stderr.read()


def test_only_what_exec_uses_is_imported(cluster: Site, tmp_path: Path) -> None:
    code, imported = modules(tmp_path, "exec", "demo", "--", "true")
    assert code == 0
    heavy = {
        "asyncssh", "boto3", "pulumi", "rich", "yaml", "engine", "infra",
    }  # fmt: skip
    assert imported & heavy == set()


@pytest.mark.parametrize("command", [["ps"], ["ssh", "demo"], ["status"]])
def test_commands_that_open_no_connection_import_no_ssh(command: list[str], tmp_path: Path) -> None:
    _, imported = modules(tmp_path, "--lab", *command)
    assert "asyncssh" not in imported


@pytest.mark.parametrize("command", [["list"], ["set", "throttle", "3"], ["clear"]])
def test_faults_are_set_without_the_labs_api(command: list[str], tmp_path: Path) -> None:
    _, imported = modules(tmp_path, "lab", "fault", *command)
    assert "moto" not in imported


def in_terminal(home: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of the command and what a terminal of 80 columns shows of it."""
    ours, theirs = pty.openpty()
    size = struct.pack("HHHH", 24, 80, 0, 0)
    fcntl.ioctl(ours, termios.TIOCSWINSZ, size)
    with subprocess.Popen(
        [sys.executable, "-m", "gpuctl", *arguments],
        cwd=ROOT, env=environment(home), stdin=theirs, stdout=theirs, stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the process has closed its side
            while data := os.read(ours, 4096):
                shown += data
        process.wait(60)
    os.close(ours)
    return process.returncode, shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("option", ["-it", "-t", "--tty"])
def test_a_command_has_a_terminal_on_one_node(cluster: Site, tmp_path: Path, option: str) -> None:
    line = "test -t 0 && test -t 1 && stty size; exit 7"
    assert in_terminal(tmp_path, "exec", option, "demo", "--", line) == (7, "24 80\n")


def test_a_terminal_is_on_the_node_that_is_named(cluster: Site, tmp_path: Path) -> None:
    code, _, stderr = gpuctl(tmp_path, "exec", "-it", "demo", "--node", "node[0-1]", "--", "sh")
    assert (code, stderr) == (
        2,
        "gpuctl: error: a terminal is on one node; 'node[0-1]' has 2;"
        " write `--node node0`, or leave `-t` out\n",
    )
    cluster.nodes[0].stop()
    code, _ = in_terminal(tmp_path, "exec", "-it", "demo", "--node", "node1", "--", "exit 9")
    assert code == 9


def test_a_command_is_run_on_the_nodes_that_are_named(cluster: Site, tmp_path: Path) -> None:
    for names, shown in (("node1", "node1"), ("node[0-1]", "node[0-1]"), ("all", "node[0-1]")):
        done = gpuctl(tmp_path, "exec", "--node", names, "demo", "--", "echo", "here")
        assert done == (0, f"--- {shown}\nhere\n", "")
    assert gpuctl(tmp_path, "exec", "demo", "--node", "node[1-2]", "--", "true") == (
        2, "", "gpuctl: error: cluster demo has no 'node2'; it has node[0-1], all\n",
    )  # fmt: skip
