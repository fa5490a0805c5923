"""Keep the metrics of a run on this machine, before its cluster may go."""

import asyncio
from pathlib import Path

from config.errors import GpuctlError
from engine.record.metrics_record import fetch_record
from nodes.inventory import Inventory
from operations.watcher import Watcher

FETCH_S = 60
"""Seconds to wait for the head: the cluster bills."""


def keep_metrics(run_id: str, inventory: Inventory, runs: Path, watcher: Watcher) -> None:
    """Fetch the run's metrics from the head. An error is only a warning."""

    async def fetch() -> None:
        async with asyncio.timeout(FETCH_S):
            await fetch_record(inventory, run_id, runs)

    try:
        asyncio.run(fetch())
    except TimeoutError:
        watcher.warn(f"metrics did not come back: no answer within {FETCH_S} s")
    except (GpuctlError, OSError) as error:
        watcher.warn(f"metrics did not come back: {error}")
    except KeyboardInterrupt:
        watcher.warn("metrics did not come back: interrupted")
