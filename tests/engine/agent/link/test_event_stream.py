"""A worker's events on their way: in order, none lost behind output, nobody stopped for ever."""

import json
import os
import threading
from typing import Any

from config.polling import Timeouts, poll
from engine.agent.link import event_stream
from engine.agent.link.event_stream import EventStream
from engine.contract.worker_events import NodeExited, Output
from tests.engine.bare_events import printed


class Pipe:
    """A report into a pipe that nobody reads until `read_all`."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        self.write = os.fdopen(write, "wb", buffering=0)
        self.report = EventStream(self.write)

    def read_all(self) -> list[dict[str, Any]]:
        """What was sent, up to the end of the stream, which it acknowledges."""
        closing = threading.Thread(target=lambda: self.report.close(lambda: True))
        events = []
        with os.fdopen(self._read, "rb") as lines:
            closing.start()
            for line in lines:
                events.append(json.loads(line))
                self.report.forget(events[-1]["sequence"])
                if events[-1]["kind"] == "ended":
                    break
        closing.join()
        self.write.close()
        return events[:-1]

    def break_off(self) -> None:
        os.close(self._read)


def test_a_jobs_end_is_not_lost_behind_output_that_waits() -> None:
    pipe = Pipe()
    texts = [f"{number:0999}" for number in range(event_stream._WAITING + 200)]

    def print_all() -> None:
        for text in texts:
            pipe.report.send(printed(text))

    job = threading.Thread(target=print_all)
    job.start()
    assert poll(lambda: pipe.report.is_full or None, Timeouts(60, 0.01))
    job.join(0.3)
    assert job.is_alive()
    pipe.report.send(NodeExited(0, 0, None))
    reading = threading.Timer(0.5, job.join)
    reading.start()
    events: list[dict[str, Any]] = []
    with os.fdopen(os.dup(pipe._read), "rb") as lines:
        while len(events) < len(texts) + 1:
            events.append(json.loads(lines.readline()))
            pipe.report.forget(events[-1]["sequence"])
    reading.join()
    assert not pipe.report.is_full
    assert pipe.read_all() == []
    assert [event["text"] for event in events if event["kind"] == "output"] == texts
    assert [event["exit_code"] for event in events if event["kind"] == "node_exited"] == [0]


def test_the_next_reader_gets_what_the_last_one_did_not_acknowledge() -> None:
    first, second = Pipe(), Pipe()
    for number in range(3):
        first.report.send(Output(0, "stdout", "x" * 1_000_000, offset=number))
    first.break_off()
    first.report.send(NodeExited(0, 0, None))
    second.report = first.report
    first.report.connect(second.write, received=1)
    events = second.read_all()
    assert [event["sequence"] for event in events] == [2, 3, 4]
    assert [event.get("offset") for event in events] == [1, 2, None]
    first.write.close()


def test_output_waits_while_the_spool_is_full() -> None:
    pipe = Pipe()
    pipe.break_off()
    pipe.report.send(printed("x" * (16 << 20)))
    assert pipe.report.is_full
    pipe.report.send(NodeExited(0, 0, None))
    pipe.report.forget(1)
    assert not pipe.report.is_full
    pipe.write.close()


def test_a_reader_that_is_not_heard_any_more_is_not_waited_for() -> None:
    pipe = Pipe()
    pipe.report.send(printed("x" * 1_000_000))
    pipe.report.close(lambda: False)
    pipe.break_off()
    pipe.write.close()
