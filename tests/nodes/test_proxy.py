"""Ssh to real nodes through a command, as ssh's ProxyCommand."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from config.errors import NodeError
from nodes.inventory import Inventory
from nodes.openssh import openssh_config
from nodes.ssh import connect
from tests.nodes.conftest import Site

PROXY = """\
import os, socket, sys, threading
ports = {ports!r}
open({log!r}, "a").write(f"{{sys.argv[1]}} {{os.getpid()}}\\n")
if sys.argv[1] not in ports:
    sys.stderr.write(f"a first line\\ngpuctl: error: {{sys.argv[1]}} is not connected\\n")
    sys.exit(1)
wire = socket.create_connection(("127.0.0.1", ports[sys.argv[1]]))
def out():
    while data := wire.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=out, daemon=True).start()
while data := os.read(0, 65536):
    wire.sendall(data)
"""


def through_proxy(site: Site, tmp_path: Path, *names: str) -> tuple[Inventory, Path]:
    """The site's nodes behind a command alone, which knows those of these names; and its log."""
    log, script = tmp_path / "log", tmp_path / "pro%xy.py"
    ports = {f"i-{name}": server.port for name, server in zip("01", site.nodes, strict=True)}
    known = {name: port for name, port in ports.items() if name in names}
    script.write_text(PROXY.format(ports=known, log=str(log)))
    proxy = (sys.executable, str(script))
    return site.inventory.model_copy(update={"bastion": None, "proxy": proxy}), log


def test_every_node_has_a_connection_of_its_own_that_ends_with_it(
    site: Site, tmp_path: Path
) -> None:
    inventory, log = through_proxy(site, tmp_path, "i-0", "i-1")
    site.bastion.stop()

    async def main() -> None:
        async with connect(inventory) as connections:
            for node in (*inventory.nodes, inventory.nodes[0]):
                done = await connections.run(node, "echo $SSH_CONNECTION; echo well >&2")
                assert done.stdout.split()[3] == str(node.port)
                assert done.stderr == "well\n"

    asyncio.run(asyncio.wait_for(main(), 60))
    started = [line.split() for line in log.read_text().splitlines()]
    assert [who for who, _ in started] == ["i-0", "i-1"]
    assert not [pid for _, pid in started if Path(f"/proc/{pid}").exists()]


def test_what_the_command_said_is_the_reason(site: Site, tmp_path: Path) -> None:
    inventory, log = through_proxy(site, tmp_path, "i-0")

    async def main() -> None:
        async with connect(inventory) as connections:
            await connections.run(inventory.nodes[1], "true")

    with pytest.raises(NodeError, match=r"^node1 \(127\.0\.0\.1\): i-1 is not connected;"):
        asyncio.run(asyncio.wait_for(main(), 60))
    assert log.read_text().startswith("i-1 ")


def test_plain_ssh_goes_the_same_way(site: Site, tmp_path: Path) -> None:
    inventory, log = through_proxy(site, tmp_path, "i-0", "i-1")
    config = tmp_path / "ssh_config"
    config.write_text(openssh_config(inventory))
    done = subprocess.run(
        ["ssh", "-F", str(config), "node1", "echo here"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("here\n", "")
    assert log.read_text().startswith("i-1 ")
