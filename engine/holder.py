"""The run that holds a cluster. The head knows it, also if another machine started the run."""

import asyncio
import shlex
from datetime import UTC, datetime

from config.errors import NodeError
from config.models import Value
from engine.agent.control import JOURNAL
from engine.agent.main import LOCK
from engine.events import RunStarted, parse_event
from engine.places import runs_folder
from nodes.inventory import Inventory
from nodes.ssh import connect

ASK_S = 8.0
"""Seconds to wait for the head: ssh through a bastion or Session Manager takes some seconds."""


class Holder(Value):
    """A run that holds a cluster. `since` is None if its journal has no start time."""

    run_id: str
    since: datetime | None = None


async def find_holder(inventory: Inventory) -> Holder | None:
    """Ask the head which run holds the cluster; return None if there is none.

    Opens a new connection: nodes.kept_connections would leave a broker behind, and callers ask
    before they destroy the cluster. Raises NodeError if the head does not answer within ASK_S.
    """
    head = inventory.nodes[0]
    where = f"{head.name} ({head.private_ip})"
    try:
        async with asyncio.timeout(ASK_S), connect(inventory) as connections:
            done = await connections.run(head, _question())
    except TimeoutError:
        raise NodeError(f"{where} did not answer within {ASK_S:.0f} s", "") from None
    if done.exit_status != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NodeError(f"{where} cannot report its run: {reason}", "")
    run_id, _, began = done.stdout.partition("\n")
    return Holder(run_id=run_id, since=_time(began)) if run_id else None


def _question() -> str:
    """Return the shell command that prints the run's id and the first line of its journal.

    It uses no agent: the head may have none, or one of another version of gpuctl.
    """
    runs = shlex.quote(runs_folder())
    return (
        f"cd {runs} 2> /dev/null || exit 0; test -e {LOCK} || exit 0;"
        f" flock --shared --nonblock --conflict-exit-code 75 {LOCK} true; held=$?;"
        " test $held != 0 || exit 0; test $held = 75 || exit $held;"
        f' run=$(cat {LOCK}); echo "${{run:-another run}}"; head -n 1 "$run/{JOURNAL}" || true'
    )


def _time(line: str) -> datetime | None:
    try:
        event = parse_event(line)
    except ValueError:  # the journal does not exist yet, or its disk was full
        return None
    return datetime.fromtimestamp(event.time, UTC) if isinstance(event, RunStarted) else None
