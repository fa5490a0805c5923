"""The supervisor's process: its journal, its socket, its launcher, and systemd."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

from engine.agent.head.queue import Queue
from engine.agent.head.run_state import journal_events
from engine.agent.head.secret_store import take_secrets
from engine.agent.head.supervisor import Supervisor
from engine.agent.head.supervisor_unit import unit_name
from engine.agent.journal.journal import Journal
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.journal.locks import protect_folder
from engine.agent.journal.run_folders import mark_used, remove_old_runs
from engine.agent.journal.run_secrets_file import handover_path, remove_handover, renew_handover
from engine.agent.link.control import SOCKET
from engine.agent.link.control_server import Answers, serve
from engine.agent.link.launcher import Launcher, Units
from engine.agent.link.times import TIMES, Times
from engine.agent.metrics.endpoint import open_endpoint
from engine.agent.notify.notifier import Notifier
from engine.agent.program import this_file
from engine.contract.codec import from_json
from engine.contract.plan import RunOrder
from engine.contract.verdict import BUSY, NO_PLAN

_RENEW_S = 5.0


def supervise(folder: Path) -> int:
    """Supervise the run to its end; return 0, or BUSY if other runs have its nodes.

    If an earlier supervisor of the run was killed, take the run up.
    """
    try:
        run = json.loads(handover_path(folder).read_text(encoding="utf-8"))
        run |= json.loads(take_secrets(folder))
    except FileNotFoundError:
        return NO_PLAN
    order = from_json(RunOrder, run)
    plan = order.plan
    protect_folder(folder)  # the queue's sign that the run lives
    if not Queue(folder.parent).enter(folder.name, plan.node_names, may_wait=plan.queue):
        return BUSY
    agent, ips = this_file(), tuple(node.private_ip for node in plan.nodes)
    units = Units(folder, agent, ips, tuple(plan.cluster_ips), plan.stop_grace_s)
    supervise_run(folder, order.with_common_texts(), agent, units)
    mark_used(folder)
    remove_handover(folder)
    return 0


def supervise_run(
    folder: Path, order: RunOrder, agent: Path, launcher: Launcher, times: Times = TIMES
) -> None:
    """Supervise the run to its end; `agent` is the agent's folder or archive."""
    asyncio.run(_supervise(folder, order, agent, launcher, times))


async def _supervise(
    folder: Path, order: RunOrder, agent: Path, launcher: Launcher, times: Times
) -> None:
    plan, secrets = order.plan, order.secrets
    remove_old_runs(folder)
    async with contextlib.AsyncExitStack() as end:  # whatever fails, all of it ends, last to first
        journal = end.enter_context(contextlib.closing(Journal(folder / JOURNAL)))
        notifier = Notifier(plan, order.notify_secrets, secrets.values(), journal, agent)
        recorded = notifier.replay(journal_events(folder / JOURNAL))
        supervisor = Supervisor(plan, secrets, journal, launcher, recorded, notifier.see, times)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _end, supervisor, folder)
        end.callback((folder / SOCKET).unlink, missing_ok=True)
        end.callback((await serve(folder, journal, answers_of(supervisor))).close)
        _notify_systemd("READY=1")
        endpoint = await open_endpoint(agent)
        if endpoint is not None:
            end.callback(endpoint.close)
        end.callback(asyncio.ensure_future(_keep_renewing(folder)).cancel)
        notifier.begin()
        end.push_async_callback(notifier.end)
        await supervisor.supervise(Queue(folder.parent))


def _end(supervisor: Supervisor, folder: Path) -> None:
    """Stop the run on SIGTERM, unless the supervisor's unit is restarted."""
    if is_being_restarted(folder):
        os._exit(0)  # the next supervisor takes the run up
    supervisor.end()


def answers_of(supervisor: Supervisor) -> Answers:
    """Return what is done for each word that a client may send."""
    return {
        "stop": lambda seconds: supervisor.stop(float(seconds or 0)),
        "ack": lambda _: supervisor.acknowledge(),
        "healed": supervisor.heal,
    }


async def _keep_renewing(folder: Path) -> None:
    """Keep the sign that the run holds its nodes, should this process be killed."""
    while True:
        renew_handover(folder)
        await asyncio.sleep(_RENEW_S)


def is_being_restarted(folder: Path) -> bool:
    """Return whether systemd stops the supervisor's unit in order to start it again.

    A restart is one job of systemd from the stop on (systemctl(1), list-jobs). In a shutdown the
    jobs are of the type `stop`.
    """
    try:
        jobs = subprocess.run(
            ["systemctl", "list-jobs", "--no-legend", "--plain"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):  # no systemd, or one that shuts down
        return False
    fields = [line.split() for line in jobs.splitlines()]
    return any(words[1:3] == [unit_name(folder), "restart"] for words in fields)


def _notify_systemd(text: str) -> None:
    """Send one datagram to systemd's notification socket, if any: sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.sendto(text.encode(), address.replace("@", "\0", 1))
