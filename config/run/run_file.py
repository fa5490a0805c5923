"""The run file: one model per `type`. Every field has an effect.

The common fields are in Run. `type` names the launcher, which starts `commands`.
"""

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Discriminator, Field, Tag

from config.cluster.cluster_file import Command
from config.duration import SIZE, Duration, Size
from config.identifiers import RUN_NAME, RunName
from config.models import MAPPING, SCALAR, Model
from config.run.code import CODE_FORMS, CodeLimit, Files, Outputs, RepoSource, Workdir
from config.run.collective import Collective
from config.run.container_fields import (
    CONTAINER_FORMS,
    IMAGE_FORM,
    IMAGE_REFERENCE,
    ImageName,
    Port,
    RegistryAuth,
    Volume,
)
from config.run.elastic import MOST_NODES, NNODES, NodeCount
from config.run.env import NAME_FORM, Env, EnvName, SweptText
from config.run.notice import NOTICE_FORMS, OnNotice, StopGrace
from config.run.notify import NOTIFY_FORMS, RunNotify
from config.run.requirements import REQUIREMENT_FORMS, Requires
from config.run.retry import MaxDuration, NoOutputTimeout, RunHang, RunRetry, StartupTimeout


class Placement(Model):
    """The placement of ranks by mpirun."""

    by: Literal["node", "slot"] = Field(
        default="slot",
        description="`slot`: a node is filled before the next; `node`: ranks go round the nodes.",
    )
    bind: Literal["none", "core", "numa", "socket"] = Field(
        default="none", description="What a rank is bound to."
    )


StartupOrder = Literal["any", "master-first", "workers-first"]
PresetName = Literal["efa", "infiniband", "roce", "hcc", "tcp", "none"]
NetworkName = Literal["auto", "rdma", PresetName]
Dtype = Literal[
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "half",
    "float",
    "double",
    "bfloat16",
    "f8e4m3",
    "f8e5m2",
]
Redop = Literal["sum", "prod", "min", "max", "avg", "mulsum"]
Scope = Literal["all", "intra", "inter"]
Commands = tuple[Command, ...]

AT_LEAST = r"^>= ?[0-9]{1,6}(\.[0-9]{1,6})?$"
TEMPLATE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
FORMS = {
    RUN_NAME: "lower-case letters, digits and hyphens, at most 41, with a letter first",
    TEMPLATE: "the name of a template: letters, digits, '.', '_' and '-'",
    NNODES: "from how many nodes to how many, such as 2..4",
    SIZE: "bytes, with K, M or G if need be: 8, 64K, 1M, 8G",
    AT_LEAST: "the lowest bandwidth in GB/s, such as '>= 380'",
    IMAGE_REFERENCE: IMAGE_FORM,
    f"^{NAME_FORM}$": "letters, digits and _, with no digit first",
}
FORMS |= CONTAINER_FORMS | REQUIREMENT_FORMS | CODE_FORMS | NOTICE_FORMS | NOTIFY_FORMS
"""The patterns of a run file in words, without those that it shares with the cluster file."""

ENDPOINT_PORT = Annotated[int, Field(ge=1024, le=65535)]


class Ready(Model):
    """The condition under which a node counts as ready for the nodes that wait for it."""

    port: int | None = Field(
        default=None, ge=1, le=65535, description="The node listens on this TCP port."
    )
    command: Command | None = Field(
        default=None, description="This shell command exits 0 on the node."
    )
    timeout: Duration = Field(
        default=300,
        description="How long to wait before the run fails.",
        json_schema_extra={"default": "5m"},
    )


class Role(Model):
    """The settings of some of a run's nodes; the run's settings replace missing ones."""

    nodes: int | None = Field(
        default=None, ge=1, le=MOST_NODES, description="Number of nodes with this role."
    )
    env: Env = Field(default={}, description="Variables that override the run's `env`.")
    commands: Commands | None = Field(
        default=None, min_length=1, description="Commands instead of the run's `commands`."
    )


class Run(Model):
    """The fields that every run file has."""

    ROLES: ClassVar[tuple[str, ...]] = ("master", "worker")
    """Names of the roles; the first is node 0's, the second that of nodes that no role takes."""

    COUNTED: ClassVar[str] = ""
    """The things that `RANK` and `WORLD_SIZE` count; empty for a type that does not set them."""

    extends: str | None = Field(
        default=None,
        pattern=TEMPLATE,
        description="Name of a template: a run file that this one overrides.",
    )
    type: str = Field(description="What starts the processes.")
    name: RunName = Field(description="The run's name.")
    nodes: NodeCount = Field(
        default=1, description="How many nodes it needs; or from how many to how many: a range."
    )
    roles: dict[str, Role] = Field(
        default={}, description="What differs between nodes, by the role's name."
    )
    image: ImageName | None = Field(
        default=None,
        description="Container image in which the commands run, on every node.",
    )
    registry_auth: RegistryAuth | None = Field(
        default=None, description="Who pulls the image from a private registry."
    )
    privileged: bool = Field(
        default=False, description="Whether the container has all devices of its node."
    )
    volumes: tuple[Volume, ...] = Field(
        default=(),
        description="Folders of the node in the container: `/data:/data`; made if missing.",
    )
    env: Env = Field(
        default={},
        description="Environment of every process: a mapping, or a list of K=V; a value may be"
        " `{secret: NAME}`, which a bare NAME in the list means too. `${NAME}` in a value is what"
        " NAME is on the node, `$${NAME}` the text.",
    )
    ports: tuple[Port, ...] = Field(
        default=(),
        description="Ports of node 0 on this machine while `run` or `attach` follows: `8000`;"
        " `80:8000` on port 80; `*:8000` on any free one.",
    )
    requires: Requires | None = Field(default=None, description="What the nodes must be.")
    workdir: Workdir = None
    repo: RepoSource = None
    files: Files = ()
    code_limit: CodeLimit = "512M"
    outputs: Outputs = ()
    network: NetworkName = Field(
        default="auto",
        description="The network preset; `auto` goes by the nodes' hardware, and so does `rdma`,"
        " which refuses nodes without RDMA.",
    )
    verify: Literal["off", "warn", "require"] | None = Field(
        default=None,
        description="What gpuctl checks in the output. By default NCCL's line that shows"
        " a fallback and wrong data of nccl-tests fail the run, `require` also fails it where a"
        " node shows no RDMA, `warn` only warns, `off` checks nothing.",
    )
    order: Literal["topology", "launch"] = Field(
        default="topology",
        description="The order of ranks: neighbours in the network first, or as launched.",
    )
    max_duration: MaxDuration = None
    startup_timeout: StartupTimeout = None
    no_output_timeout: NoOutputTimeout = None
    hang: RunHang = None
    retry: RunRetry = None
    stop_grace: StopGrace = 10
    on_notice: OnNotice = Field(
        default=OnNotice(), description="What each node does when the job must end soon."
    )
    notify: RunNotify = ()
    on_stop: Literal["keep", "destroy"] = Field(
        default="keep",
        description="What happens to the cluster when the run is over, however it ended.",
    )


_EVERY_NODE = Field(
    min_length=1, description="Shell commands, in order, in one bash; the first failure ends."
)
_EVERY_RANK = Field(
    min_length=1, description="Shell commands that every rank runs, in order, in one bash."
)


class Task(Run):
    """A run of commands on every node."""

    type: Literal["task"] = Field(description="`task`: the commands run on every node.")
    commands: Commands = _EVERY_NODE
    startup_order: StartupOrder = Field(
        default="any",
        description="Who starts when; those that wait, wait until the others are ready.",
    )
    stop_criteria: Literal["all-done", "master-done"] = Field(
        default="all-done", description="When the run is over; a failure always ends it."
    )
    ready: Ready = Field(
        default=Ready(),
        description="When a node counts as ready; by default when its commands started.",
    )


class Mpirun(Run):
    """The fields that `mpi` and `nccl-tests` share: the arguments of mpirun."""

    ROLES: ClassVar[tuple[str, ...]] = ("launcher", "worker")

    implementation: Literal["openmpi", "intel", "mpich"] = Field(
        default="openmpi", description="Which MPI's mpirun; gpuctl detects Open MPI 4 or 5."
    )
    procs_per_node: int | None = Field(
        default=None, ge=1, le=1024, description="Ranks on a node; by default one per GPU."
    )
    launcher_as_node: bool = Field(
        default=True, description="Whether ranks run on the launcher (node 0) too."
    )
    placement: Placement = Field(default=Placement(), description="Where ranks go.")
    mpirun_args: tuple[str, ...] = Field(
        default=(), max_length=100, description="More arguments for mpirun, before the program."
    )


class Mpi(Mpirun):
    """A run of commands in every rank of an MPI job."""

    type: Literal["mpi"] = Field(description="`mpi`: mpirun on node 0 starts the ranks.")
    commands: Commands = _EVERY_RANK


class Gate(Model):
    """The bandwidth that a collective must reach; the run fails if it does not."""

    busbw: str = Field(
        pattern=AT_LEAST, description="The lowest bus bandwidth in GB/s: `'>= 380'`."
    )
    at: Size = Field(description="The message size; one that the run measures.")
    scope: Scope | None = Field(
        default=None, description="The scope that is judged; required with several `scopes`."
    )


def _kind_of_expectation(value: Any) -> str:
    return SCALAR if isinstance(value, str) else MAPPING


Expect = Annotated[
    Annotated[Literal["reference"], Tag(SCALAR)] | Annotated[dict[str, Gate], Tag(MAPPING)],
    Discriminator(_kind_of_expectation),
]


class NcclTests(Mpirun):
    """A run of nccl-tests: a case for each combination of its lists, one after the other."""

    type: Literal["nccl-tests"] = Field(
        description="`nccl-tests`: the collectives asked for, by mpirun."
    )
    collectives: tuple[Collective, ...] = Field(
        default=("all_reduce",), min_length=1, description="Which, in this order."
    )
    min_bytes: Size = Field(default="8", description="The smallest message (8, 64K, 1M, 8G).")
    max_bytes: Size = Field(default="8G", description="The largest message.")
    factor: int = Field(default=2, ge=2, le=1024, description="From one size to the next.")
    iterations: int = Field(default=20, ge=1, le=10_000, description="Timed rounds of each size.")
    warmup: int = Field(default=5, ge=0, le=10_000, description="Rounds before those.")
    check: bool = Field(default=True, description="Whether results are checked.")
    sizes: tuple[Size, ...] = Field(
        default=(),
        min_length=1,
        description="Message sizes, each a case, instead of `min_bytes` to `max_bytes`.",
    )
    dtypes: tuple[Dtype, ...] = Field(
        default=(), min_length=1, description="Data types; by default that of nccl-tests, float."
    )
    redops: tuple[Redop, ...] = Field(
        default=(), min_length=1, description="Reductions; by default that of nccl-tests, sum."
    )
    scopes: tuple[Scope, ...] = Field(
        default=("all",),
        min_length=1,
        description="`all`: all GPUs together; `intra`: each node alone, one after the other;"
        " `inter`: one GPU of each node.",
    )
    gpus_per_node: tuple[Annotated[int, Field(ge=1, le=64)], ...] = Field(
        default=(), min_length=1, description="Numbers of GPUs of each node, each a case."
    )
    sweep: dict[EnvName, Annotated[tuple[SweptText, ...], Field(min_length=1)]] = Field(
        default={},
        description="Environment variables, each with a list of values; every combination is a"
        " case.",
    )
    repeat: int = Field(default=1, ge=1, le=100, description="How often each case is measured.")
    expect: Expect | None = Field(
        default=None,
        description="Bandwidths that fail the run if they are not reached: a mapping from"
        " collectives to gates, or `reference` for public figures of the instance type.",
    )


class Ddp(Run):
    """A run of commands on every node, as TI-ONE's DDP: `RANK` and `WORLD_SIZE` count nodes."""

    COUNTED: ClassVar[str] = "nodes"
    type: Literal["ddp"] = Field(
        description="`ddp`: the commands run on every node; workers wait for the master's port."
    )
    commands: Commands = _EVERY_NODE
    port: ENDPOINT_PORT = Field(default=23456, description="`MASTER_PORT`.")
    ready_timeout: Duration = Field(
        default=300,
        description="How long workers wait for the master's port.",
        json_schema_extra={"default": "5m"},
    )


class Torchrun(Run):
    """A run of torchrun on every node."""

    COUNTED: ClassVar[str] = "ranks"
    type: Literal["torchrun"] = Field(description="`torchrun`: torchrun starts ranks on each node.")
    commands: Commands = _EVERY_RANK
    nnodes: Annotated[str, Field(pattern=NNODES)] | None = Field(
        default=None, description="Instead of `nodes`: from so many to so many (2..4), elastic."
    )
    procs_per_node: int | None = Field(
        default=None, ge=1, le=1024, description="Ranks on a node; by default one per GPU."
    )
    max_restarts: int = Field(
        default=0, ge=0, le=1000, description="How often ranks are started again after a failure."
    )
    port: ENDPOINT_PORT = Field(default=29500, description="Port of the rendezvous on node 0.")


class Horovod(Run):
    """A run of horovodrun on the launcher."""

    ROLES: ClassVar[tuple[str, ...]] = ("launcher", "worker")
    type: Literal["horovod"] = Field(
        description="`horovod`: horovodrun on node 0 starts the ranks."
    )
    commands: Commands = _EVERY_RANK
    procs_per_node: int | None = Field(
        default=None, ge=1, le=1024, description="Ranks on a node; by default one per GPU."
    )


class DeepSpeed(Run):
    """A run of DeepSpeed's launcher on the head."""

    ROLES: ClassVar[tuple[str, ...]] = ("launcher", "worker")
    COUNTED: ClassVar[str] = "ranks"
    type: Literal["deepspeed"] = Field(
        description="`deepspeed`: DeepSpeed's launcher on node 0 starts the ranks."
    )
    commands: Commands = _EVERY_RANK
    procs_per_node: int | None = Field(
        default=None, ge=1, le=1024, description="Ranks on a node; by default one per GPU."
    )
    port: ENDPOINT_PORT = Field(default=29500, description="`MASTER_PORT`.")


class PsWorker(Run):
    """A run of parameter servers and workers, as in TensorFlow; `roles` sets the number of each."""

    ROLES: ClassVar[tuple[str, ...]] = ("ps", "worker")
    type: Literal["ps-worker"] = Field(
        description="`ps-worker`: parameter servers and workers, with `TF_CONFIG`."
    )
    commands: Commands | None = Field(
        default=None, min_length=1, description="Commands of the roles that set none."
    )
    port: ENDPOINT_PORT = Field(default=2222, description="Port of each task's server.")


class Ray(Run):
    """A Ray cluster; the commands run on its head. `roles` are the head and groups of workers."""

    ROLES: ClassVar[tuple[str, ...]] = ("head", "worker")
    COUNTED: ClassVar[str] = "nodes (`RANK` alone)"
    type: Literal["ray"] = Field(description="`ray`: a Ray cluster; the commands run on its head.")
    commands: Commands = _EVERY_NODE
    port: ENDPOINT_PORT = Field(default=6379, description="`HEAD_PORT`.")
    dashboard_port: ENDPOINT_PORT = Field(default=8265, description="Port of Ray's dashboard.")


_MODELS = (Task, Mpi, NcclTests, Ddp, Torchrun, Horovod, DeepSpeed, PsWorker, Ray)

RUN_TYPES: dict[str, type[Run]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in _MODELS
}
"""The model of each type of run file, in the order of the documentation."""
