"""A worker's events on their way: in order, none lost behind output, nobody stopped for ever."""

import json
import os
import threading
from typing import Any

from engine.agent import event_stream
from engine.agent.event_stream import EventStream


class Pipe:
    """A report into a pipe that nobody reads until `read_all`."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        self.write = os.fdopen(write, "wb")
        self.report = EventStream(self.write)

    def read_all(self, sender: threading.Thread) -> list[dict[str, Any]]:
        """What was sent; the report is closed when `sender` has ended."""

        def close() -> None:
            sender.join()
            self._close()

        closing = threading.Thread(target=close)
        closing.start()
        with os.fdopen(self._read, "rb") as lines:
            events = [json.loads(line) for line in lines]
        closing.join()
        return events

    def give_up(self) -> None:
        os.close(self._read)
        self._close()

    def _close(self) -> None:
        self.report.close(lambda: True)
        self.write.close()


def test_a_jobs_end_is_not_lost_behind_output_that_waits() -> None:
    pipe = Pipe()
    printed = [f"{number:0999}" for number in range(event_stream._WAITING + 200)]

    def print_all() -> None:
        for text in printed:
            pipe.report.send_output(text=text)

    job = threading.Thread(target=print_all)
    job.start()
    job.join(1)
    assert job.is_alive()
    assert pipe.report.is_full
    pipe.report.send("node_exited", exit_code=0)
    events = pipe.read_all(job)
    assert not pipe.report.is_full
    assert [event["text"] for event in events if event["kind"] == "output"] == printed
    assert [event["exit_code"] for event in events if event["kind"] == "node_exited"] == [0]


def test_nobody_waits_for_a_reader_that_has_gone() -> None:
    pipe = Pipe()
    pipe.report.send_output(text="x" * 1_000_000)
    pipe.give_up()
    assert pipe.write.closed


def test_a_reader_that_is_not_heard_any_more_is_not_waited_for() -> None:
    pipe = Pipe()
    pipe.report.send_output(text="x" * 1_000_000)
    pipe.report.close(lambda: False)
    assert pipe.report._writer.is_alive()
    os.close(pipe._read)
    pipe.report._writer.join()
    pipe.write.close()
