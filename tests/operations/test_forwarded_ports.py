"""Ports of node 0 on this machine: which ssh is started, for how long, and what is printed."""

import os
import signal
import socket
from pathlib import Path

import pytest

from cli.output import Output
from config.errors import InputError
from nodes.inventory import Inventory
from operations.forwarded_ports import check_ports, forwarded
from tests.engine.conftest import make_inventory

# It reports its process and its arguments, and waits until it is ended.
SSH = """\
#!/bin/bash
echo "$BASHPID $*" >"${0%/*}/said"
exec sleep infinity
"""


@pytest.fixture
def there(tmp_path: Path) -> Inventory:
    return make_inventory(1).model_copy(update={"folder": tmp_path})


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an ssh that connects to nothing; it writes to the FIFO `said`."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(SSH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    os.mkfifo(program.parent / "said")
    return program.parent


def said(folder: Path) -> list[str]:
    """What ssh was started with; waits until it says it."""
    return (folder / "said").read_text().split()


def test_ports_are_forwarded_while_the_run_is_followed(
    there: Inventory, ssh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken, socket.socket() as probe:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        probe.bind(("127.0.0.1", 0))
        busy, free = taken.getsockname()[1], probe.getsockname()[1]
        probe.close()
        with forwarded((f"{free}:80", f"{busy}:81", "*:82"), there, "node0", Output().progress()):
            process, *words = said(ssh)
            assert Path(f"/proc/{process}").exists()
    assert not Path(f"/proc/{process}").exists()
    pairs = [word for word in words if word.startswith("127.0.0.1:")]
    assert [pair.split(":", 2)[2] for pair in pairs] == [
        "localhost:80",
        "localhost:81",
        "localhost:82",
    ]
    here = [int(pair.split(":")[1]) for pair in pairs]
    assert here[0] == free
    assert busy not in here
    assert words[:4] == ["-F", str(there.folder / "ssh_config"), "-N", "-o"]
    assert words[-1] == "node0"
    assert capsys.readouterr().out.splitlines() == [
        f"-- port {80 + index} of node0: http://localhost:{port}" for index, port in enumerate(here)
    ]


def test_an_ssh_that_ends_is_replaced_with_a_warning(
    there: Inventory,
    ssh: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ports = ("*:80", "*:81")
    with forwarded(ports, there, "node0", Output().progress(), look_s=0.01, again_s=0.01):
        words = said(ssh)
        for _ in range(2):
            os.kill(int(words[0]), signal.SIGTERM)
            before, words = words, said(ssh)
            assert words[1:] == before[1:]
    assert not Path(f"/proc/{words[0]}").exists()
    assert capsys.readouterr().err == (
        "gpuctl: warning: ssh to node0 ended with -15, its ports are not forwarded; gpuctl tries"
        " again until the run is over\n"
    )


def test_a_run_without_ports_starts_nothing(there: Inventory) -> None:
    with forwarded((), there, "node0", Output().progress()):
        assert not (there.folder / "ssh_config").exists()


def test_without_ssh_the_run_goes_on(
    there: Inventory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with forwarded(("8000",), there, "node0", Output().progress()):
        pass
    assert capsys.readouterr().err == (
        "gpuctl: warning: ports are not forwarded: the program `ssh` is not installed\n"
    )


def refusal(*ports: str) -> str:
    with pytest.raises(InputError) as caught:
        check_ports(ports)
    return str(caught.value)


def test_a_port_in_use_is_an_error_before_the_run_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = taken.getsockname()[1]
        assert refusal("*:80", f"{busy}:81") == (
            f"ports cannot be forwarded to this machine: {busy} is in use; write another port"
            " before the colon, or a star for any free port: '*:81'"
        )
        check_ports(("*:80", "*:81"))
    check_ports((f"{busy}:81",))


def test_a_port_that_is_named_twice_is_an_error() -> None:
    assert refusal("18265", "18265:80") == (
        "ports cannot be forwarded to this machine: 18265 is named twice; write another port"
        " before the colon, or a star for any free port: '*:18265'"
    )


def test_a_port_of_root_is_an_error_for_other_users() -> None:
    least = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if least <= 80:
        pytest.skip("this kernel lets everybody listen on port 80")
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        assert refusal("80:8000") == (
            "ports cannot be forwarded to this machine: 80 is for root alone; write another port"
            " before the colon, or a star for any free port: '*:8000'"
        )
    finally:
        os.seteuid(user)
