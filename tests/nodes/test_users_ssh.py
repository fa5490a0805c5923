"""The user's own ssh: how it reaches a machine, and what is wrong where it does not."""

import asyncio
import getpass
from pathlib import Path

import pytest

from config.errors import NodeError
from nodes.openssh import known_hosts_name
from nodes.users_ssh import Login, Route, route, run_as_root
from tests.nodes.conftest import Site

LIMIT_S = 60.0


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
        asyncio.run(run_as_root(each, "true", LIMIT_S))
    return str(caught.value)


@pytest.mark.slow
def test_a_script_runs_where_the_host_key_is_accepted_and_written_down(
    site: Site, tmp_path: Path
) -> None:
    accepted = tmp_path / "accepted hosts"
    done = asyncio.run(
        run_as_root(login(site, accepted=accepted), "echo out; echo err >&2; exit 3", LIMIT_S)
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


@pytest.mark.parametrize(
    ("jump", "proxy"),
    [
        (None, ()),
        ("door", ("-W", "10.0.0.5:2222", "--", "ssh://door")),
        ("ann@door:2200", ("-W", "10.0.0.5:2222", "--", "ssh://ann@door:2200")),
        ("a,b@c,door", ("-J", "a,b@c", "-W", "10.0.0.5:2222", "--", "ssh://door")),
    ],
)
def test_a_jump_becomes_a_command(jump: str | None, proxy: tuple[str, ...]) -> None:
    settings = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15")
    expected = Route("10.0.0.5", 2222, (*settings, *proxy) if proxy else ())
    assert asyncio.run(route(Login("10.0.0.5", port=2222, jump=jump))) == expected
