"""The launch plan: everything that a run executes, as one value (plan/launch_plan.py makes it).

Client and agent have the same classes. Times are in seconds, sizes in bytes. A worker gets its
node's part with an order.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Optional

from config.identifiers import ClusterName, NodeName, RunId, RunName
from engine.contract.node_plan import CodePlan, ImagePlan, NodePlan, NoticePlan, ReadyPlan

StopCriteria = Literal["all-done", "master-done", "workers-done"]

Promise = Literal["", "efa", "infiniband", "roce"]
"""A transport that NCCL's lines can prove (engine/agent/judge/rdma_check.py), or none."""


Verify = Literal["auto", "off", "warn", "require"]
"""How NCCL's lines and tables are checked: `warn` never fails a run, `require` needs a proof."""


@dataclass(frozen=True)
class Case:
    """One call of a program of nccl-tests; `number` counts from 1, sizes are in bytes.

    `dtype` and `redop` are empty for the program's default. `scope` is `all`, `intra` or `inter`;
    `node` is the only node of scope `intra`, else empty. `gpus_per_node` is 0 for the run's usual
    number of ranks. `variables` override the environment of each rank. `repetition` counts from 1.
    """

    number: int
    title: str
    collective: str
    min_bytes: int
    max_bytes: int
    dtype: str = ""
    redop: str = ""
    scope: str = "all"
    node: str = ""
    gpus_per_node: int = 0
    variables: dict[str, str] = field(default_factory=dict)
    repetition: int = 1

    @property
    def program(self) -> str:
        """The program's name."""
        return f"{self.collective}_perf"


@dataclass(frozen=True)
class Gate:
    """A bus bandwidth in GB/s that the cases must reach at a size in bytes.

    `cases` are the numbers of one case's repetitions: their median is judged. `source` says where
    the expected bandwidth comes from.
    """

    title: str
    cases: tuple[int, ...]
    size: int
    busbw: float
    source: str


@dataclass(frozen=True)
class Sweep:
    """The cases of a run of nccl-tests, in order, and their gates.

    With `is_stand_in` CPU programs take the place of nccl-tests, as in the lab.
    """

    cases: tuple[Case, ...]
    gates: tuple[Gate, ...] = ()
    is_stand_in: bool = False


@dataclass(frozen=True)
class NetworkPlan:
    """The network preset of the run's environment, and what NCCL's lines must prove.

    `promises` is the preset's transport, empty if the preset promises no RDMA (tcp, none).
    `interfaces` is the number of EFA interfaces of each node, 0 if NCCL's number is not checked.
    `gpudirect` means that a connection without GPUDirect RDMA is a failure. `verify` is of the run
    file, by default `auto`.
    """

    preset: str = "none"
    promises: Promise = ""
    interfaces: int = 0
    gpudirect: bool = False
    verify: Verify = "auto"


@dataclass(frozen=True)
class NotifyPlan:
    """A target of notifications. `to` is a URL, a command, or an SMTP server as `HOST:PORT`.

    `to` is empty if the URL is the secret `to_secret`. `on` are the events of which it is notified.
    `values` are headers of a POST, variables of a command, or an e-mail's `sender` and `to` (commas
    between); `secrets` maps more of them to the names of secrets, as an e-mail's `user` and
    `password`.
    """

    form: Literal["json", "slack", "command", "email"]
    on: tuple[str, ...]
    to: str = ""
    to_secret: str = ""
    values: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BudgetPlan:
    """What the cluster may cost in all, in US dollars, and how its cost grows.

    The cost is `hourly_usd` for each hour after the time `since`, in seconds since the epoch. A
    notification reports the cost once it is `warn_usd`.
    """

    max_usd: float
    warn_usd: float
    hourly_usd: float
    since: float


@dataclass(frozen=True)
class RetryPlan:
    """When the run starts again after a failure: see config/run/retry.py."""

    attempts: int
    on: tuple[str, ...]
    backoff_s: int
    node_wait_s: int


HangAction = Literal["report", "stop", "restart"]
"""What follows when the job hangs: the run goes on, fails, or starts again by its `retry`."""


@dataclass(frozen=True)
class HangPlan:
    """After how many seconds without output the ranks are examined, and what follows."""

    after_s: int
    action: HangAction


@dataclass(frozen=True)
class CommonTexts:
    """The texts that all nodes share; a node's own values override them.

    Every node has the addresses of all nodes: without these texts the size of a plan would grow
    with the square of their number.
    """

    environment: dict[str, str]
    secrets: dict[str, str]
    files: dict[str, str]
    script: str

    @classmethod
    def of(cls, nodes: Sequence[NodePlan]) -> CommonTexts:
        """Return the texts that all these nodes have; as the script, that of the last one."""
        return cls(
            environment=_common([node.environment for node in nodes]),
            secrets=_common([node.secrets for node in nodes]),
            files=_common([node.files for node in nodes]),
            script=nodes[-1].script if all(node.script for node in nodes) else "",
        )

    def remove_from(self, node: NodePlan) -> NodePlan:
        """Return the node without these texts; its script is empty if it is the common one."""
        return replace(
            node,
            environment=_without(node.environment, self.environment),
            secrets=_without(node.secrets, self.secrets),
            files=_without(node.files, self.files),
            script="" if node.script == self.script else node.script,
        )

    def add_to(self, node: NodePlan) -> NodePlan:
        """Return the node with these texts; its own override them."""
        return replace(
            node,
            environment={**self.environment, **node.environment},
            secrets={**self.secrets, **node.secrets},
            files={**self.files, **node.files},
            script=node.script or self.script,
        )


def _common(texts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the entries that all mappings have."""
    first, *others = texts
    return {
        name: text
        for name, text in first.items()
        if all(other.get(name) == text for other in others)
    }


def _without(own: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of `own` that `known` lacks."""
    return {name: text for name, text in own.items() if name not in known}


@dataclass(frozen=True)
class SizedNode:
    """A node's own part of a size; `script` is None where it is the common one."""

    role: str
    processes: int
    environment: dict[str, str]
    secrets: dict[str, str]
    files: dict[str, str]
    script: Optional[str]


@dataclass(frozen=True)
class Size:
    """The plan of a run on fewer nodes than it began with; `nodes` are in rank order."""

    network: NetworkPlan
    startup_order: str
    stop_criteria: StopCriteria
    ready: Optional[ReadyPlan]
    common: CommonTexts
    nodes: tuple[SizedNode, ...]


@dataclass(frozen=True)
class LaunchPlan:
    """A run, ready to be executed; `nodes` in rank order, the first is the master.

    `startup_order` is `any`, `master-first` or `workers-first`. `cluster_ips` are the addresses of
    all nodes of the cluster, the head's first, also of those that this run does not use: they power
    off if `on_stop` is `destroy` and no client destroys the cluster. `head` is the node of the
    supervisor; another run may have it.
    With `queue` the run waits on the head while other runs have its nodes; else it is refused.
    `saved` is the folder of the shared storage to which the head copies what the run leaves on its
    nodes, before they power off; empty without shared storage, and if the cluster stays.
    `code` is the run's working folder; without it jobs start in the home.
    `least_nodes` is the number of nodes with which the run may go on after it has lost some, and
    `sizes` are its plans on fewer nodes (plan/launch_plan.py), if the run file has a range and
    `retry`.
    `is_spot` means that AWS may reclaim the nodes. With `workers-done` the run ends when every
    node with the role `worker` has exited with 0. `programs` are the programs of nccl-tests that
    the commands name, in order; `sweep` has the cases of `type: nccl-tests`. `dashboard` is a URL
    on the head, reachable from the nodes; empty if there is no dashboard. `ports` of the first node
    are on the machine of a client that follows the run. gpuctl prints `warnings` to the user who
    starts the run. `budget` is None without `notify`, and
    if the cluster file has no `budget.max_total`. `gpuctl` begins the commands that notifications
    show: it has the options of the run's client. `owner` is the person who starts the run.
    A job has `stop_grace_s` between SIGTERM and SIGKILL. AWS ends the nodes at the time `ends_at`,
    in seconds since the epoch, if it is known; gpuctl rents them if `is_rented`.
    """

    run_id: RunId
    name: RunName
    cluster: ClusterName
    head: NodeName
    startup_order: str
    stop_criteria: StopCriteria
    max_duration_s: Optional[int]
    on_stop: Literal["keep", "destroy"]
    ready: Optional[ReadyPlan]
    nodes: tuple[NodePlan, ...]
    cluster_ips: tuple[str, ...]
    schema_version: int = 2
    type: str = "task"
    startup_timeout_s: Optional[int] = None
    no_output_timeout_s: Optional[int] = None
    hang: Optional[HangPlan] = None
    retry: Optional[RetryPlan] = None
    notify: tuple[NotifyPlan, ...] = ()
    budget: Optional[BudgetPlan] = None
    gpuctl: str = "gpuctl"
    saved: str = ""
    queue: bool = False
    image: Optional[ImagePlan] = None
    code: Optional[CodePlan] = None
    network: NetworkPlan = field(default_factory=NetworkPlan)
    least_nodes: Optional[int] = None
    sizes: tuple[Size, ...] = ()
    is_spot: bool = False
    dashboard: str = ""
    ports: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    sweep: Optional[Sweep] = None
    warnings: tuple[str, ...] = ()
    owner: str = ""
    stop_grace_s: int = 10
    on_notice: NoticePlan = field(default_factory=NoticePlan)
    ends_at: Optional[float] = None
    is_rented: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """The patterns of files that come back at the end."""
        return self.code.outputs if self.code else ()

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the names of the nodes in rank order."""
        return tuple(node.name for node in self.nodes)

    @functools.cached_property
    def hosts(self) -> str:
        """Return the nodes in rank order, as lines of /etc/hosts: `ADDRESS NAME`."""
        return "".join(f"{node.private_ip} {node.name}\n" for node in self.nodes)

    @functools.cached_property
    def head_rank(self) -> Optional[int]:
        """Return the rank of the head; None if the run does not use it."""
        ranks = [node.rank for node in self.nodes if node.name == self.head]
        return ranks[0] if ranks else None

    @property
    def is_elastic(self) -> bool:
        """Return whether the run may go on with fewer nodes."""
        return bool(self.sizes)


@dataclass(frozen=True)
class RunOrder:
    """A client's order to the head. `secrets` maps the names in the plan to values.

    `notify_secrets` are those of notifications: no node but the head gets them. `common` are the
    texts that the plan's nodes share and do not repeat; None if each has all of its texts.
    """

    plan: LaunchPlan
    secrets: dict[str, str]
    notify_secrets: dict[str, str] = field(default_factory=dict)
    common: Optional[CommonTexts] = None

    def without_common_texts(self) -> RunOrder:
        """Return the order as it is sent."""
        common = CommonTexts.of(self.plan.nodes)
        nodes = tuple(map(common.remove_from, self.plan.nodes))
        return replace(self, plan=replace(self.plan, nodes=nodes), common=common)

    def with_common_texts(self) -> RunOrder:
        """Return the order with all texts of each node in its plan."""
        if self.common is None:
            return self
        nodes = tuple(map(self.common.add_to, self.plan.nodes))
        return replace(self, plan=replace(self.plan, nodes=nodes), common=None)
