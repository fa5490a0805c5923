"""Keep the metrics of a run on this machine, before its cluster may go."""

from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import GpuctlError

if TYPE_CHECKING:
    from cli.output import Output
    from nodes.inventory import Inventory

FETCH_S = 60
"""Seconds to wait for the head: the cluster bills."""


def keep_metrics(run_id: str, there: "Inventory", runs: Path, out: "Output") -> None:
    """Fetch the run's metrics from the head. An error is only a warning."""
    import asyncio

    from engine.record.metrics_record import fetch_record

    async def fetch() -> None:
        async with asyncio.timeout(FETCH_S):
            await fetch_record(there, run_id, runs)

    try:
        asyncio.run(fetch())
    except TimeoutError:
        out.warn(f"metrics did not come back: no answer within {FETCH_S} s")
    except (GpuctlError, OSError) as error:
        out.warn(f"metrics did not come back: {error}")
    except KeyboardInterrupt:
        out.warn("metrics did not come back: interrupted")
