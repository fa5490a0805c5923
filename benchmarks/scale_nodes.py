"""Simulated nodes, all in one process: they speak the workers' protocol, and run nothing.

A supervisor connects to `nodes.sock` once per node. Each node sends its heartbeats and a line of
output a second, keeps what the supervisor does not have yet, and ends when it is told to, or when
its heartbeats are not answered any more.
"""

import json
import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from engine.agent.link.heartbeat_process import BEAT_S, SilenceWatch, seal, unseal
from engine.contract.event import Event, to_line
from engine.contract.worker_events import (
    HeadSilent,
    NodeExited,
    NodePrepared,
    NodeReady,
    NodeStarted,
    Output,
    Reached,
    WorkerEnded,
)

LINE = "step 48213 loss 2.3457 grad_norm 0.8712 lr 3.0e-04 tokens/s 81234 mem 71.2 GiB"
BATCH = "\n".join([LINE] * 100)
"""As many lines as one event of a worker has, if its job prints fast."""
_LISTENER, _ORDERS = "listener", "orders"
_PARTS = 10  # of a beat: nodes send their heartbeats at different times


class SimulatedNode:
    """One node: what it has sent, and its connection, if it has one."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.begin()
        self.connection: socket.socket | None = None

    def begin(self) -> None:
        """Become a worker that was just launched."""
        self.kept: deque[tuple[int, bytes]] = deque()
        self.unsent = b""
        self.heard = b""
        self.sequence = 0
        self.has_order = self.runs = self.is_silent = self.has_ended = self.is_dead = False
        self.heartbeats: dict[str, Any] | None = None

    def turn_to(self, heartbeats: dict[str, Any]) -> None:
        """Send heartbeats there, and watch for answers."""
        self.heartbeats = heartbeats
        self.watch = SilenceWatch(heartbeats["silence_s"])
        self.watch.hear(0, time.monotonic())

    def send(self, event: Event) -> None:
        """Queue an event."""
        self.sequence += 1
        line = to_line(event, time=round(time.time(), 3), sequence=self.sequence).encode() + b"\n"
        self.kept.append((self.sequence, line))
        self.unsent += line

    def print(self, text: str) -> None:
        """Queue lines of output."""
        self.send(Output(self.rank, "stdout", text))


class SimulatedNodes:
    """All nodes. `orders` brings what happens to them: see `_obey`."""

    def __init__(self, path: Path, count: int, orders: Connection) -> None:
        self._nodes = [SimulatedNode(rank) for rank in range(count)]
        self._selector = selectors.DefaultSelector()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(count)
        self._selector.register(listener, selectors.EVENT_READ, _LISTENER)
        self._orders = orders
        self._selector.register(orders, selectors.EVENT_READ, _ORDERS)
        self._beats = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._beats.setblocking(False)
        self._beats.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
        self._parts = 0
        self._fills = False

    def run(self) -> None:
        """Play the nodes until the order `end`."""
        due = time.monotonic()
        while True:
            for key, _ in self._selector.select(max(0.0, due - time.monotonic())):
                if key.data == _LISTENER:
                    self._accept(key.fileobj)
                elif key.data == _ORDERS:
                    order = self._orders.recv()
                    if order == "end":
                        return
                    self._obey(*order)
                else:
                    self._serve(key.data, key.fileobj)
            if time.monotonic() >= due:
                self._live()
                due = time.monotonic() + BEAT_S / _PARTS

    def _obey(self, what: str, ranks: Sequence[int] = ()) -> None:
        """Let something happen to the nodes with these ranks, or to all."""
        if what in ("fill", "calm"):
            self._fills = what == "fill"
        for node in (self._nodes[rank] for rank in ranks) if ranks else self._nodes:
            if what == "die":  # the machine is gone, and its connections with it
                node.runs, node.heartbeats, node.is_dead = False, None, True
                self._close(node)
            elif what == "exit":
                self._end(node, 0)
            elif what == "fill":
                self._flush(node)
            elif what == "silence" and node.connection is not None:
                self._selector.unregister(node.connection)  # it stays, and passes nothing
                node.is_silent = True
            elif what == "speak" and node.connection is not None:  # the end of a silence
                self._selector.register(node.connection, selectors.EVENT_READ, node)
                node.is_silent = False
                self._flush(node)

    def _live(self) -> None:
        """Send the heartbeats and the lines of a second, for one part of the nodes."""
        self._parts += 1
        number, part = divmod(self._parts, _PARTS)
        for node in self._nodes[part::_PARTS]:
            if node.is_silent:
                continue
            to = node.heartbeats
            if to is not None:
                key = bytes.fromhex(to["key"])
                beat = seal(key, b"q", node.rank, number + 1)
                self._beats.sendto(beat, (to["address"], to["port"]))
            if node.runs and not self._fills:
                node.print(LINE)
                self._flush(node)
        self._hear_answers()
        for node in self._nodes:
            if node.runs and node.watch.look(time.monotonic()) and node.connection is not None:
                node.send(HeadSilent("has not heard the head"))
                self._end(node, 143)

    def _hear_answers(self) -> None:
        """Take the answers that came; all nodes have the same key."""
        key = next((node.heartbeats["key"] for node in self._nodes if node.heartbeats), "")
        try:
            while True:
                answer = unseal(bytes.fromhex(key), b"a", self._beats.recv(64))
                if answer and not self._nodes[answer[0]].is_silent:
                    self._nodes[answer[0]].watch.hear(0, time.monotonic())
        except BlockingIOError:
            return

    def _accept(self, listener: Any) -> None:
        connection, _ = listener.accept()
        with connection.makefile("rb", buffering=0) as first:  # the launcher sends it at once
            how, rank = first.readline().split()
        connection.setblocking(False)
        node = self._nodes[int(rank)]
        self._close(node)
        if how == b"open":
            node.begin()
        elif node.is_dead:
            connection.close()
            return
        else:
            node.unsent, node.heard = to_line(Reached()).encode() + b"\n", b""
        node.connection = connection
        self._selector.register(connection, selectors.EVENT_READ, node)
        self._flush(node)

    def _serve(self, node: SimulatedNode, readable: object) -> None:
        connection = node.connection
        if connection is None or connection is not readable:
            return
        try:
            data = connection.recv(1 << 18)
        except BlockingIOError:
            self._flush(node)
            return
        except OSError:
            data = b""
        if not data:
            self._close(node)
            return
        *lines, node.heard = (node.heard + data).split(b"\n")
        for line in lines:
            self._hear(node, json.loads(line))
        self._flush(node)

    def _hear(self, node: SimulatedNode, order: dict[str, Any]) -> None:
        """Do what the supervisor says."""
        if not node.has_order:
            node.has_order = True
            node.turn_to(order["heartbeats"])
            node.send(NodePrepared(node.rank))
        elif order["do"] == "attach":
            node.turn_to(order["heartbeats"])
            self._forget(node, order["received"])
            node.unsent += b"".join(line for _, line in node.kept)
        elif order["do"] == "received":
            self._forget(node, order["sequence"])
            if node.has_ended and not node.kept:
                self._close(node)
        elif order["do"] == "start" and not node.runs and not node.has_ended:
            node.runs = True
            node.send(NodeStarted(node.rank, pid=1))
            node.send(NodeReady(node.rank))
            node.print("the first line")
        elif order["do"] in ("stop", "leave"):
            self._end(node, 143)

    def _forget(self, node: SimulatedNode, sequence: int) -> None:
        while node.kept and node.kept[0][0] <= sequence:
            node.kept.popleft()

    def _end(self, node: SimulatedNode, code: int) -> None:
        if node.has_ended or node.is_silent:
            return
        node.runs, node.has_ended = False, True
        node.send(NodeExited(node.rank, code, signal=15 if code else None))
        node.send(WorkerEnded())
        self._flush(node)

    def _flush(self, node: SimulatedNode) -> None:
        """Send what waits, as much as is taken."""
        if node.connection is None or node.is_silent:
            return
        try:
            while True:
                if not node.unsent and self._fills and node.runs:
                    node.print(BATCH)
                if not node.unsent:
                    break
                node.unsent = node.unsent[node.connection.send(node.unsent) :]
        except BlockingIOError:
            pass  # the selector says when there is room
        except OSError:
            self._close(node)
            return
        wants = selectors.EVENT_READ | (selectors.EVENT_WRITE if node.unsent else 0)
        self._selector.modify(node.connection, wants, node)

    def _close(self, node: SimulatedNode) -> None:
        if node.connection is not None:
            if not node.is_silent:
                self._selector.unregister(node.connection)
            node.connection.close()
            node.connection = None
