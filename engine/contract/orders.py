"""Orders: a client starts a run on the head, and the head starts a worker on each node.

Times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Optional

from engine.contract.plan import CodePlan, CommonTexts, ImagePlan, LaunchPlan, NodePlan, ReadyPlan


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


@dataclass(frozen=True)
class HeartbeatAddress:
    """The address for a worker's heartbeats; `key`, in hexadecimal digits, signs them.

    The supervisor counts as silent after `silence_s` without an answer; its first answer may take
    `answer_s`. `turn` is the number of supervisors that the worker had before this one.
    """

    address: str
    port: int
    key: str
    answer_s: float
    silence_s: float
    turn: int = 0


@dataclass(frozen=True)
class WorkOrder:
    """The first message to a worker. `secrets` maps the job's secret variables to their values.

    `hosts` are all nodes of the run (LaunchPlan.hosts). `hidden` are the values that output must
    not show. `ready` is the condition to report if other nodes wait for this one, else None.
    `grace_s` is the time between SIGTERM and SIGKILL. Without a supervisor for `lost_supervisor_s`
    the worker ends its job. `metadata` is the URL of EC2's metadata service, None for nodes that
    AWS does not reclaim.
    """

    node: NodePlan
    hosts: str
    image: Optional[ImagePlan]
    code: Optional[CodePlan]
    secrets: dict[str, str]
    hidden: tuple[str, ...]
    ready: Optional[ReadyPlan]
    grace_s: float
    lost_supervisor_s: float
    metadata: Optional[str]
    heartbeats: HeartbeatAddress
