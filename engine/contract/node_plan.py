"""One node's part of a launch plan, and the order with which its worker gets it.

Times are in seconds, sizes in bytes. Every worker imports this module, and none needs the whole
plan: on one machine the classes of both take 15 ms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from config.identifiers import NodeName, SshHost


@dataclass(frozen=True)
class NodePlan:
    """One node's part of the plan. `files` maps paths on the node to their text.

    The job's environment is a login's, overridden by `environment`, plus `secrets`, which maps a
    variable to the name of its secret. `processes` is the number of ranks that a launcher must
    start on this node; 0 on every node if gpuctl does not check the number.
    """

    rank: int
    name: NodeName
    private_ip: SshHost
    role: str
    environment: dict[str, str]
    script: str
    files: dict[str, str]
    secrets: dict[str, str] = field(default_factory=dict)
    processes: int = 0


@dataclass(frozen=True)
class ImagePlan:
    """The container in which every node's job runs.

    `id` is the hash of the image, with which the nodes start it; empty until they have pulled it.
    `digest` (`sha256:…`) is the image's name in the registry, None for an image without a registry.
    `username` and `password_secret` (a secret's name) are for private registries, else empty.
    `privileged`: the container has all devices. `volumes` are the node's folders and their places
    in the container (`/data:/data`).
    """

    reference: str
    id: str = ""
    digest: Optional[str] = None
    username: str = ""
    password_secret: str = ""
    privileged: bool = False
    volumes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CodePlan:
    """The working folder of a run: the tree that it begins with, and the outputs in it.

    `tree` is the hash of a tree of files (plan/source_tree.py), empty for a folder that begins
    empty. `files` and `size` are those of the tree; `outputs` are paths and patterns in the folder.
    """

    tree: str = ""
    files: int = 0
    size: int = 0
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadyPlan:
    """The condition for a node to be ready; without port and command it is ready once started."""

    port: Optional[int]
    command: Optional[str]
    timeout_s: int


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
class NoticePlan:
    """What a node does when the job gets notice (config/run/notice.py); empty: nothing."""

    signal: str = ""
    file: str = ""
    command: str = ""


@dataclass(frozen=True)
class WorkOrder:
    """The first message to a worker. `secrets` maps the job's secret variables to their values.

    `hosts` are all nodes of the run (LaunchPlan.hosts). `hidden` are the values that output must
    not show. `ready` is the condition to report if other nodes wait for this one, else None.
    `grace_s` is the time between SIGTERM and SIGKILL. Without a supervisor for `lost_supervisor_s`
    the worker ends its job. AWS may reclaim the node if `is_spot`, and maintain it if `is_rented`.
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
    is_spot: bool
    is_rented: bool
    on_notice: NoticePlan
    heartbeats: HeartbeatAddress
