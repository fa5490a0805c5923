"""The user's own ssh: how it reaches a machine, and what is wrong where it does not."""

import asyncio
import getpass
import subprocess
from pathlib import Path

import pytest

from config.errors import NodeError
from nodes.openssh import known_hosts_name
from nodes.users_ssh import Login, Route, route, run_script
from tests.e2e.ssh_agents import ssh_agent
from tests.nodes.conftest import Site

LIMIT_S = 60.0
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=15 -o LogLevel=ERROR"


def login(site: Site, **changes: object) -> Login:
    server = site.nodes[0]
    fields = {
        "address": "127.0.0.1",
        "user": getpass.getuser(),
        "port": server.port,
        "identity": str(site.inventory.folder / "id_ed25519"),
    }
    return Login(**{**fields, **changes})  # type: ignore[arg-type]


def refusal(each: Login) -> str:
    with pytest.raises(NodeError) as caught:
        asyncio.run(run_script(each, "true", LIMIT_S))
    return str(caught.value)


@pytest.mark.slow
def test_a_script_runs_where_the_host_key_is_accepted_and_written_down(
    site: Site, tmp_path: Path
) -> None:
    accepted = tmp_path / "accepted hosts"
    done = asyncio.run(
        run_script(login(site, accepted=accepted), "echo out; echo err >&2; exit 3", LIMIT_S)
    )
    assert (done.exit_status, done.stdout, done.complaint) == (3, "out\n", "err")
    server = site.nodes[0]
    kind, key = server.host_key.split()[:2]
    assert accepted.read_text() == f"{known_hosts_name('127.0.0.1', server.port)} {kind} {key}\n"


@pytest.mark.slow
def test_an_unknown_host_key_is_refused(site: Site) -> None:
    assert refusal(login(site)) == (
        "the host key of 127.0.0.1, or of a jump to it, is not known; log in once with `ssh`, or"
        " add --accept-new-host-keys"
    )


@pytest.mark.slow
def test_another_host_key_than_before_is_refused_also_where_new_ones_are_accepted(
    site: Site, tmp_path: Path
) -> None:
    accepted = tmp_path / "accepted"
    other = site.nodes[1].host_key
    accepted.write_text(f"{known_hosts_name('127.0.0.1', site.nodes[0].port)} {other}\n")
    assert refusal(login(site, accepted=accepted)).startswith(
        "127.0.0.1 shows another host key than before; somebody may be in between"
    )


@pytest.mark.slow
def test_a_machine_that_does_not_listen_cannot_be_reached(site: Site, tmp_path: Path) -> None:
    site.nodes[0].stop()
    said = refusal(login(site, accepted=tmp_path / "accepted"))
    assert said.startswith("127.0.0.1 cannot be reached: ssh: connect to host 127.0.0.1 port ")
    assert said.endswith("Connection refused; see whether `ssh` reaches it from this machine")


@pytest.mark.slow
def test_new_host_keys_of_two_jumps_are_accepted_and_then_count(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "agent"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    ports = [site.bastion.port, site.nodes[1].port]
    jumps = ",".join(f"{getpass.getuser()}@127.0.0.1:{port}" for port in ports)
    accepted = tmp_path / "100% 'accepted'"
    behind = login(site, jump=jumps, accepted=accepted)
    with ssh_agent(socket, site.inventory.folder / "id_ed25519"):
        assert asyncio.run(run_script(behind, "echo out", LIMIT_S)).stdout == "out\n"
        ports.append(site.nodes[0].port)
        names = [line.split()[0] for line in accepted.read_text().splitlines()]
        assert names == [known_hosts_name("127.0.0.1", port) for port in ports]

        way = asyncio.run(route(behind))
        with subprocess.Popen(way.proxy, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as proxy:
            assert proxy.stdout is not None
            assert proxy.stdout.readline().startswith(b"SSH-2.0-")
            proxy.kill()
        accepted.write_text("")
        done = subprocess.run(
            way.proxy, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert "Host key verification failed." in done.stderr


@pytest.mark.parametrize(
    ("jump", "proxy"),
    [
        (None, ()),
        ("door", ("-W", "10.0.0.5:2222", "--", "ssh://door")),
        ("ann@door:2200", ("-W", "10.0.0.5:2222", "--", "ssh://ann@door:2200")),
        (
            "a,b@c,door",
            (
                "-o",
                f"ProxyCommand={SSH} -o 'ProxyCommand={SSH} -W %%h:%%p -- ssh://a' -W %h:%p"
                " -- ssh://b@c",
                "-W",
                "10.0.0.5:2222",
                "--",
                "ssh://door",
            ),
        ),
    ],
)
def test_a_jump_becomes_a_command(jump: str | None, proxy: tuple[str, ...]) -> None:
    expected = Route("10.0.0.5", 2222, (*SSH.split(), *proxy) if proxy else ())
    assert asyncio.run(route(Login("10.0.0.5", port=2222, jump=jump))) == expected
