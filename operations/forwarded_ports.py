"""Ports of a run's node 0 on this machine, by an ssh that lives as long as gpuctl follows.

The ssh may end before that: the client slept, or the network was away. The run goes on, gpuctl
follows it again, and a new ssh forwards the same ports.
"""

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from config.errors import InputError
from nodes.inventory import Inventory
from nodes.openssh import write_openssh_config
from operations.watcher import Watcher

_END_S = 5
_AGAIN_AT_MOST_S = 60.0
_Tunnel = subprocess.Popen[bytes]


def check_ports(ports: Sequence[str]) -> None:
    """Raise InputError if a port that the run file names cannot be used on this machine.

    That is if a program listens on it, if only root may, or if the run file names it twice.
    """
    named = [number for number, _ in map(_numbers, ports) if number]
    refused = {port: reason for port in named if (reason := _refusal(port))}
    refused |= {port: "is named twice" for port in named if named.count(port) > 1}
    if refused:
        reasons = ", ".join(f"{port} {reason}" for port, reason in refused.items())
        remote = next(remote for local, remote in map(_numbers, ports) if local in refused)
        raise InputError(
            f"ports cannot be forwarded to this machine: {reasons}",
            f"write another port before the colon, or a star for any free port: '*:{remote}'",
        )


@contextlib.contextmanager
def forwarded(
    ports: Sequence[str],
    inventory: Inventory,
    node: str,
    watcher: Watcher,
    look_s: float = 1.0,
    again_s: float = 2.0,
) -> Iterator[None]:
    """Forward the ports to the node while the block runs; note where each of them is.

    A port that is taken by now gets a free one instead: the run exists already. Without the program
    `ssh` there is a warning, and the run goes on without ports. An ssh that has ended is noticed
    within `look_s` and replaced after `again_s`, which doubles while it ends again.
    """
    if not ports:
        yield
        return
    pairs = [_pair(port) for port in ports]
    try:
        tunnel = _tunnel(pairs, inventory, node)
    except FileNotFoundError:
        watcher.warn("ports are not forwarded: the program `ssh` is not installed")
        yield
        return
    for local, remote in pairs:
        watcher.note(f"-- port {remote} of {node}: http://localhost:{local}")

    def lost(status: int) -> None:
        which = "port is" if len(pairs) == 1 else "ports are"
        watcher.warn(
            f"ssh to {node} ended with {status}, its {which} not forwarded; gpuctl tries again"
            " until the run is over"
        )

    over = threading.Event()
    keeper = threading.Thread(
        target=_keep,
        args=(tunnel, lambda: _tunnel(pairs, inventory, node), lost, over, look_s, again_s),
        daemon=True,
    )
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


def _keep(
    tunnel: _Tunnel,
    start: Callable[[], _Tunnel],
    lost: Callable[[int], None],
    over: threading.Event,
    look_s: float,
    again_s: float,
) -> None:
    """Replace the tunnel whenever it ends, and end it when `over` is set.

    `lost` is called once for an outage: for a tunnel that lived longer than the longest pause.
    """
    pause, began = again_s, time.monotonic()
    is_new_outage = True
    while not over.wait(look_s):
        status = tunnel.poll()
        if status is None:
            continue
        if time.monotonic() - began > _AGAIN_AT_MOST_S:
            pause, is_new_outage = again_s, True
        if is_new_outage:
            lost(status)
            is_new_outage = False
        if over.wait(pause):
            break
        pause = min(2 * pause, _AGAIN_AT_MOST_S)
        with contextlib.suppress(OSError):  # no disk or no process for it: the next round tries
            tunnel, began = start(), time.monotonic()
    tunnel.terminate()
    try:
        tunnel.wait(_END_S)
    except subprocess.TimeoutExpired:
        tunnel.kill()
        tunnel.wait()


def _tunnel(pairs: Sequence[tuple[int, int]], inventory: Inventory, node: str) -> _Tunnel:
    """Start ssh with the ports. Ctrl-C does not reach it: the run needs its ports to its end."""
    command = ["ssh", "-F", str(write_openssh_config(inventory)), "-N"]
    # Without ports it is of no use, and ends where another program has taken one.
    command += ["-o", "ServerAliveInterval=15", "-o", "ExitOnForwardFailure=yes"]
    for local, remote in pairs:
        command += ["-L", f"127.0.0.1:{local}:localhost:{remote}"]
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        [*command, node], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )


def _pair(port: str) -> tuple[int, int]:
    """Return a port that is free on this machine, and the node's."""
    local, remote = _numbers(port)
    return (_any_free_port() if not local or _refusal(local) else local), remote


def _numbers(port: str) -> tuple[int, int]:
    """Return the port on this machine, 0 for any, and the node's."""
    local, colon, remote = port.rpartition(":")
    return (0 if local == "*" else int(local if colon else remote)), int(remote)


def _refusal(port: int) -> str:
    """Return why gpuctl cannot listen on the port; empty if it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            return "is for root alone"
        except OSError:
            return "is in use"
    return ""


def _any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number
