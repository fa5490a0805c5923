"""Ports of a run's node 0 on this machine, by an ssh that lives as long as gpuctl follows."""

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.output import Output
    from nodes.inventory import Inventory

_END_S = 5


@contextmanager
def forwarded(ports: Sequence[str], there: "Inventory", node: str, out: "Output") -> Iterator[None]:
    """Forward the ports to the node while the block runs; print where each of them is.

    A port that is taken on this machine gets a free one instead. Without the program `ssh` there
    is a warning, and the run goes on without ports.
    """
    if not ports:
        yield
        return
    pairs = [_pair(port) for port in ports]
    try:
        tunnel = _tunnel(pairs, there, node)
    except FileNotFoundError:
        out.warn("ports are not forwarded: the program `ssh` is not installed")
        yield
        return
    for here, remote in pairs:
        out.note(f"-- port {remote} of {node}: http://localhost:{here}")
    try:
        yield
    finally:
        tunnel.terminate()
        try:
            tunnel.wait(_END_S)
        except subprocess.TimeoutExpired:
            tunnel.kill()
            tunnel.wait()


def _tunnel(
    pairs: Sequence[tuple[int, int]], there: "Inventory", node: str
) -> "subprocess.Popen[bytes]":
    """Start ssh with the ports. Ctrl-C does not reach it: the run needs its ports to its end."""
    from nodes.openssh import openssh_config

    path = there.folder / "ssh_config"
    path.write_text(openssh_config(there))
    command = ["ssh", "-F", str(path), "-N", "-o", "ServerAliveInterval=15"]
    for here, remote in pairs:
        command += ["-L", f"127.0.0.1:{here}:localhost:{remote}"]
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        [*command, node], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )


def _pair(port: str) -> tuple[int, int]:
    """Return the port on this machine, and the node's."""
    here, colon, remote = port.rpartition(":")
    wanted = 0 if here == "*" else int(here if colon else remote)
    return _free_port(wanted), int(remote)


def _free_port(wanted: int) -> int:
    """Return the port if nobody listens on it, else a free one; any for 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return _free_port(0)
        number: int = probe.getsockname()[1]
        return number
