"""The sampler of a node: a thread of the worker that sends a sample of the node now and then.

Nothing waits for it, and a sample that cannot be sent at once is dropped: output comes first.
"""

from __future__ import annotations

import threading
from pathlib import Path

from engine.agent.link.event_stream import EventStream
from engine.contract.worker_events import Sample

INTERVAL_S = 5.0
_END_S = 1.0  # time for the last sample; a file system that hangs must not keep the worker


class Sampler:
    """The sampler of one node. `folder` is the run's, `report` takes the samples.

    `root` is the folder with the machine's `proc` and `sys`.
    """

    def __init__(
        self,
        folder: Path,
        report: EventStream,
        interval_s: float = INTERVAL_S,
        root: Path = Path("/"),
    ) -> None:
        self._folder, self._report = folder, report
        self._interval_s, self._root = interval_s, root
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Send samples from now on."""
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send a last sample, which has the run's totals, and end."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_END_S)

    def _run(self) -> None:
        # In this thread: the job has started already, and does not wait for it.
        from engine.agent.metrics import gpu_counters, node_counters  # noqa: PLC0415

        counters = node_counters.NodeCounters(self._folder, self._root)
        gpus = gpu_counters.Gpus()
        gpus.start()
        is_last = False
        while not is_last:
            is_last = self._ended.is_set()
            sample = counters.read()
            if rows := gpus.read():
                sample.update(gpus=rows, sources=gpus.sources)
            self._report.offer(Sample(sample, is_last))
            self._ended.wait(self._interval_s)  # once it has ended, this returns at once
        gpus.stop()
