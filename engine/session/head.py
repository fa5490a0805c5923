"""The head node, as the clients of a run call it: its agent, its runs and their plans.

A client that removes or heals nodes holds locks on the head, and a guard against its power-off.
They open ssh connections anew: the broker of nodes.kept_connections belongs to a cluster
that stays.
"""

import asyncio
import contextlib
import json
import shlex
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from pydantic import Field

from config.command_text import command_text
from config.errors import NodeError, RunError
from config.event_loop import run_in_loop
from config.foreign import MOST, Malformed, parse_foreign
from config.identifiers import RUN_ID, RUN_NAME, RunId, is_valid
from config.models import Value
from engine.agent.journal.journal_file import JOURNAL
from engine.contract.codec import to_json
from engine.contract.plan import LaunchPlan, RunOrder
from engine.contract.verdict import BUSY
from engine.plan.notify_plan import secret_names
from engine.plan.remote_paths import ENTER_MEMORY, run_paths, runs_folder
from engine.record.events import FirstEvent, parse_event
from engine.session.bundle import agent_bundle, ship_agent
from nodes.answers import may_have_run
from nodes.inventory import Inventory, Node
from nodes.kept_connections import connect

if TYPE_CHECKING:
    from nodes.ssh import Connections


CALL_S = 30
_START_S = 120
_NO_AGENT = 97  # from the command in `start`; the agent itself ends with 0 to 3


class ClusterBusy(RunError):
    """Other runs have the nodes: this run did not start, and the cluster is unchanged."""

    def __init__(self, cluster: str, runs: Sequence[RunId]) -> None:
        first, *more = runs
        others = f" and {len(more)} more" if more else ""
        super().__init__(
            f"cluster {cluster} is busy with run {first}{others}",
            "wait for it (`gpuctl run --queue`,"
            f" {command_text('gpuctl wait {}', first)}) or stop it"
            f" ({command_text('gpuctl stop {}', first)})",
        )


class NotStarted(RunError):
    """The head was not reached: this run did not start, and the cluster is unchanged."""

    def __init__(self, plan: LaunchPlan, error: NodeError) -> None:
        bills = f"cluster {plan.cluster} is as it was, and bills"
        removes = f"{command_text('gpuctl down {}', plan.cluster)} removes it"
        hint = f"{bills}: {removes}" if plan.on_stop == "destroy" else ""
        super().__init__(
            f"run {plan.run_id} was not started: {error.message}",
            "; ".join(filter(None, (error.hint, hint))),
        )


class _Busy(Value):
    """The answer of a head that refuses a run: the runs that have its nodes."""

    busy: tuple[RunId, ...] = Field(min_length=1)


def _busy_runs(answer: str, head: Node) -> tuple[RunId, ...]:
    try:
        return parse_foreign(_Busy, answer).busy
    except Malformed as error:
        raise NodeError(
            f"{head.label} refuses the run, and does not say why: {error}", ""
        ) from error


class Head:
    """The head of a cluster, for one run."""

    def __init__(self, inventory: Inventory, run_id: str, start_requested: bool = False) -> None:
        self.inventory, self._run_id = inventory, run_id
        self.node = inventory.nodes[0]
        self.start_requested = start_requested
        """True once the head was asked to start the run: it may be active even after an error."""

    async def start(self, plan: LaunchPlan, secrets: Mapping[str, str]) -> None:
        """Start the run's supervisor with plan and secrets; send the agent if the head has none.

        Raises ClusterBusy if other runs have its nodes, unless it may wait for them, and NotStarted
        if the head is not reached.
        """
        bundle, head = agent_bundle(with_stacks=plan.hang is not None), self.node
        used = {name: secrets[name] for node in plan.nodes for name in node.secrets.values()}
        with self._connection_errors(plan):
            async with connect(self.inventory) as connections:
                # Environment and secrets go through stdin: every user can see arguments.
                folder = run_paths(self.inventory, plan.run_id).folder
                start = bundle.command(self.inventory, "start", folder)
                path = shlex.quote(bundle.path(self.inventory))
                command = f"test -d {path} || exit {_NO_AGENT}; exec {start}"
                more = {name: secrets[name] for name in secret_names(plan.notify)}
                text = json.dumps(to_json(RunOrder(plan, used, more).without_common_texts()))
                self.start_requested = True
                done = await connections.run(head, command, stdin=text, timeout=_START_S)
                if done.exit_status == _NO_AGENT:  # the head does not have this gpuctl's agent yet
                    self.start_requested = False
                    await ship_agent(connections, self.inventory, bundle)
                    self.start_requested = True
                    done = await connections.run(head, command, stdin=text, timeout=_START_S)
        self.start_requested = done.exit_status == 0
        if done.exit_status == BUSY:
            raise ClusterBusy(plan.cluster, _busy_runs(done.stdout, head))
        if done.exit_status != 0:
            errors = done.stderr.strip().splitlines() or ["no reason given"]
            raise RunError(
                f"{head.label} cannot start the run: {errors[-1]}",
                "log in with"
                f" {command_text('gpuctl ssh {} {}', plan.cluster, head.name)} to find out why",
            )

    @contextlib.contextmanager
    def _connection_errors(self, plan: LaunchPlan) -> Iterator[None]:
        """Raise NotStarted for an error before the head was asked to start the run."""
        try:
            yield
        except NodeError as error:
            if self.start_requested and may_have_run(error):
                raise
            self.start_requested = False
            raise NotStarted(plan, error) from error

    async def send(self, word: str) -> None:
        """Send `stop`, `ack` or `healed …` to the run's supervisor; do nothing if it has ended."""
        async with connect(self.inventory) as connections:
            await connections.run(
                self.node, agent_command(self.inventory, self._run_id, "send", word), timeout=CALL_S
            )

    async def report_healed(self, addresses: Mapping[str, str]) -> None:
        """Report to the run's supervisor that lost nodes, by their names, were made again."""
        await self.send(f"healed {json.dumps(dict(addresses), separators=(',', ':'))}")

    @contextlib.asynccontextmanager
    async def journal(self, offset: int) -> AsyncIterator[AsyncIterator[str]]:
        """Follow the lines of the run's journal from byte `offset` while the block runs."""
        command = agent_command(self.inventory, self._run_id, "follow", str(offset))
        async with (
            connect(self.inventory) as connections,
            contextlib.aclosing(connections.lines(self.node, command)) as lines,
        ):
            yield lines


async def find_run(inventory: Inventory, name: str) -> FirstEvent | None:
    """Ask the head for the run with this id, else for the newest with this name; None for neither.

    The head also knows runs that other machines started. It answers for its own cluster alone: a
    run of another one is none. Raises NodeError if it does not answer.
    """
    if not is_valid(name, RUN_ID) and not is_valid(name, RUN_NAME):
        return None
    # The first event of a journal has all that clients need. No agent is asked: the head may have
    # none, or one of another version of gpuctl.
    runs, word = shlex.quote(runs_folder(inventory)), shlex.quote(name)
    question = (
        f"cd {runs} 2> /dev/null || exit 0; for run in {word} {word}-??????; do"
        f' test ! -e "$run/{JOURNAL}" || head -n 1 "$run/{JOURNAL}" || exit 1; done'
    )
    async with connect(inventory) as connections:
        done = await connections.run(inventory.nodes[0], question, timeout=CALL_S)
    if done.exit_status != 0:
        head = inventory.nodes[0].label
        raise NodeError(f"{head} cannot report its runs: {done.complaint}", "")
    events = [_parsed(line) for line in done.stdout.splitlines()]
    runs_named = [
        event
        for event in events
        if isinstance(event, FirstEvent)
        and event.cluster == inventory.cluster
        and name in (event.run_id, event.name)
    ]
    exact = [event for event in runs_named if event.run_id == name]
    return max(exact or runs_named, key=lambda event: event.time, default=None)


def _parsed(line: str) -> object:
    try:
        return parse_event(line) if len(line) <= MOST else None
    except ValueError:  # its disk was full when the run began
        return None


def agent_command(inventory: Inventory, run_id: str, command: str, *arguments: str) -> str:
    """Return the shell command that calls the agent of the run; it does nothing without a run."""
    folder = run_paths(inventory, run_id).folder
    agent = f"{folder}/agent.pyz"
    return f"test ! -e {shlex.quote(agent)} || exec python3 -IS " + shlex.join(
        [agent, command, folder, *arguments]
    )


_ASK_S = 60
_LARGEST = 64 << 20
"""Bytes of a plan, which has the scripts and files of all nodes."""
_PRINT = """
import json, pathlib, sys
for path in (pathlib.Path(run + ".json") for run in sys.argv[1:]):
    if path.exists():
        run = json.loads(path.read_text())
        print(json.dumps({"plan": run["plan"], "common": run.get("common"), "secrets": {}}))
"""


async def plans_of(runs: list[str], inventory: Inventory) -> dict[str, LaunchPlan]:
    """Return the launch plans of these runs, by their ids, without runs that are over.

    A client that did not start a run needs its code and image to make a lost node ready for it. The
    plans are in the head's memory, on no disk, and have no values of secrets. Raises RunError if
    another version of gpuctl started a run.
    """
    head = inventory.nodes[0]
    command = f"{ENTER_MEMORY}; exec {shlex.join(['python3', '-IS', '-c', _PRINT, *runs])}"
    async with connect(inventory) as connections:
        done = await connections.run(head, command, timeout=_ASK_S)
    if done.exit_status != 0:
        raise NodeError(f"{head.name} cannot report the plans of its runs: {done.complaint}", "")
    plans = [_plan(line) for line in done.stdout.splitlines()]
    for plan in plans:
        if plan.run_id not in runs or plan.cluster != inventory.cluster:
            raise NodeError(
                f"{head.name} answers for run {plan.run_id} of cluster {plan.cluster}, which is not"
                " its own",
                "",
            )
    return {plan.run_id: plan for plan in plans}


def _plan(line: str) -> LaunchPlan:
    try:
        return parse_foreign(RunOrder, line, _LARGEST).with_common_texts().plan
    except Malformed as error:
        raise RunError(
            f"another version of gpuctl started {_named(line)}",
            "attach with that version",
        ) from error


class _NamedPlan(Value):
    run_id: RunId


class _Named(Value):
    plan: _NamedPlan


def _named(line: str) -> str:
    try:
        return f"run {parse_foreign(_Named, line, _LARGEST).plan.run_id}"
    except Malformed:
        return "a run"


HOLD_S = 10.0
"""Seconds to wait for the head's answer about a lock."""
_RELEASE_S = 2.0
_RENEW_S = 30.0  # a sixth of the supervisor's `lease_s`


class Hold:
    """A lock on the head, see `hold`. `answer` is that of the head, empty if it gave none."""

    def __init__(self) -> None:
        self.answer = ""
        self._answered, self._over = threading.Event(), threading.Event()

    def run(self, inventory: Inventory, command: str, answer_s: float) -> None:
        """Hold the lock until `release`, in a thread."""
        try:
            run_in_loop(self._converse(inventory, command, answer_s))
        finally:
            self._answered.set()

    async def _converse(self, inventory: Inventory, command: str, answer_s: float) -> None:
        # The head does not answer, or is removed while the lock is held.
        with contextlib.suppress(NodeError, TimeoutError):
            async with (
                asyncio.timeout(answer_s) as limit,
                _connect(inventory) as connections,
                connections.converse(inventory.nodes[0], command) as talk,
            ):
                self.answer = (await talk.line(MOST)).decode(errors="replace").strip()
                limit.reschedule(None)
                self._answered.set()
                await asyncio.to_thread(self._over.wait)

    def wait(self) -> None:
        """Wait for the head's answer."""
        self._answered.wait()

    def release(self) -> None:
        """Release the lock."""
        self._over.set()


@contextlib.contextmanager
def hold(run_id: str, inventory: Inventory, what: str, answer_s: float = HOLD_S) -> Iterator[str]:
    """Hold a lock of the cluster (agent/head/queue.py) during the block; yield the answer.

    It is empty if the head does not answer within `answer_s` or does not have the run.
    """
    held = Hold()
    command = agent_command(inventory, run_id, "hold", what)
    thread = threading.Thread(target=held.run, args=(inventory, command, answer_s), daemon=True)
    thread.start()
    held.wait()
    try:
        yield held.answer
    finally:
        held.release()
        thread.join(_RELEASE_S)  # a head that was removed does not say goodbye


@contextlib.contextmanager
def prevent_power_off(run_id: str, inventory: Inventory) -> Iterator[None]:
    """Keep the run's nodes powered on while the caller destroys the cluster.

    Acknowledge to the supervisor every _RENEW_S seconds. When that ends, because the caller is
    done or has died, the nodes power off after `lease_s` (engine/agent/link/times.py).
    """
    ended = threading.Event()
    acknowledge = agent_command(inventory, run_id, "send", "ack")

    async def renew() -> None:
        while not ended.is_set():
            with contextlib.suppress(NodeError):  # parts of the way to the head are gone already
                async with _connect(inventory) as connections:
                    while not ended.is_set():
                        await connections.run(inventory.nodes[0], acknowledge, timeout=CALL_S)
                        await asyncio.to_thread(ended.wait, _RENEW_S)
            await asyncio.to_thread(ended.wait, 1.0)

    renewing = threading.Thread(target=lambda: run_in_loop(renew()), name="lease", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join(CALL_S)


def _connect(inventory: Inventory) -> "AbstractAsyncContextManager[Connections]":
    # asyncssh takes 0.1 s of CPU, and most clients of a run take no lock before its end.
    from nodes.ssh import connect  # noqa: PLC0415

    return connect(inventory)
