"""The processes of a run's ranks now, and what they wait for, as each node shows them."""

from collections.abc import Mapping, Sequence

from config.bounds import Text
from config.errors import GpuctlError, NodeError
from config.foreign import Malformed, parse_foreign
from config.identifiers import NodeName
from config.models import Value
from engine.agent.judge.hangs import Seen, judge_hang, where
from engine.contract.worker_events import RanksExamined
from engine.plan.remote_paths import run_paths
from engine.session.bundle import agent_bundle, ship_agent
from nodes.fanout import on_each
from nodes.inventory import Inventory, Node
from nodes.kept_connections import connect

_EXAMINE_S = 60.0
"""Seconds for a node's answer: the examination itself takes at most 10."""


class ShownProcess(Value):
    """A process of the job: what it does (`waits in load (train.py:88)`), and all its threads.

    `rank` is the one that its launcher gave it, None without a launcher.
    """

    rank: int | None
    node: NodeName
    pid: int
    command: str
    where: str
    threads: str


class RunProcesses(Value):
    """The processes of a run by their ranks; `verdict` compares them, in one line.

    `silent` are the nodes that gave no answer, and why.
    """

    verdict: str
    processes: tuple[ShownProcess, ...]
    silent: dict[NodeName, Text]


async def run_processes(inventory: Inventory, run_id: str, names: Sequence[str]) -> RunProcesses:
    """Examine the run's processes on the nodes with these names, all at once.

    A node that lacks gpuctl's agent with py-spy gets it. The job is not paused.
    """
    nodes = [node for node in inventory.nodes if node.name in names]
    bundle = agent_bundle(with_stacks=True)
    command = bundle.command(inventory, "ranks", run_paths(inventory, run_id).folder)
    async with connect(inventory) as connections:

        async def examine(node: Node) -> RanksExamined:
            await ship_agent(connections, inventory, bundle, node)
            done = await connections.run(node, command, timeout=_EXAMINE_S)
            if done.exit_status != 0:
                raise NodeError(f"{node.name} cannot show its processes: {done.complaint}", "")
            return read_answer(node.name, done.stdout)

        answers = await on_each(nodes, examine)
    return compared({node.name: answers[node.rank] for node in nodes})


def read_answer(node: str, text: str) -> RanksExamined:
    """Return the node's answer; raise NodeError if it has another form."""
    try:
        return parse_foreign(RanksExamined, text)
    except Malformed as error:
        complaint = f"{node} cannot show its processes: its answer is malformed: {error}"
        raise NodeError(complaint, "") from error


def compared(answers: Mapping[str, RanksExamined | GpuctlError]) -> RunProcesses:
    """Return all processes, compared; `answers` are by the nodes' names."""
    seen, silent = list[Seen](), dict[str, str]()
    for name, answer in answers.items():
        if isinstance(answer, GpuctlError):
            silent[name] = answer.message
        else:
            seen += [Seen(name, process) for process in answer.processes]
    processes = [
        ShownProcess(
            rank=each.process.rank,
            node=each.node,
            pid=each.process.pid,
            command=each.process.command,
            where=where(each.process),
            threads=each.process.text,
        )
        for each in seen
    ]
    # Python sorts stably: processes without a rank stay in the order of their nodes.
    processes.sort(key=lambda each: -1 if each.rank is None else each.rank)
    verdict = judge_hang(seen, {}, list(silent))
    return RunProcesses(verdict=verdict.text, processes=tuple(processes), silent=silent)
