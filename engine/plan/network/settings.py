"""Variables that network presets set, and variables that users should not set, in groups.

Each has its reason, versions and source. `presets.py` says which preset has which
group.

A run sets variables not only in `env`: launchers have options (`mpirun -x NAME=VALUE`, Hydra's
`-genv NAME VALUE`, Open MPI's `--mca`, horovodrun's `--network-interfaces`), and commands, and
scripts that they start, export variables. Both are read without a shell: a text that only looks
like an assignment (`echo NCCL_DEBUG=WARN`) counts too.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from config.run.env import Secret
from config.run.run_file import Mpirun, Run

EFA_TABLE = "aws-ofi-nccl, doc/efa-env-var.md, 2026-11-20"
CHEATSHEET = "awsome-distributed-ai, efa-cheatsheet.md, 2026-11-20"
NCCL_TESTS = "awsome-distributed-ai, nccl-tests-ami.sbatch, 2026-11-20"
PLATFORM = "aws-ofi-nccl, src/platform-aws.cpp, 2026-11-20"
NCCL_DOCS = "NCCL user guide, Environment Variables, 2026-11-20"
TI_ONE = "TI-ONE's documentation of RDMA on HCC clusters, 2026-11-20"
ANY = "all"

INTERFACE = "the node's interface"
"""A placeholder for the name of the interface with the node's private address, which bootstrap
found. The variable is not set if the names differ between nodes or are unknown."""

HCAS = "the node's devices"
"""A placeholder for the names of the preset's RDMA devices, with the same conditions."""


@dataclass(frozen=True)
class PresetVariable:
    """A variable of a preset, for the instance types of `families`; for all types if empty.

    `is_for_forks`: only runs whose processes fork have it.
    """

    name: str
    value: str
    reason: str
    versions: str
    source: str
    families: tuple[str, ...] = ()
    is_for_forks: bool = False


@dataclass(frozen=True)
class BadSetting:
    """A variable that is obsolete or harmful. `values` are the harmful values; empty for any.

    `harmful` is a pattern of them, if there are more than `values` names. `names_interfaces`: its
    value is a list of interfaces, and is harmful if it has none of the nodes'.
    """

    name: str
    why: str
    instead: str
    source: str
    values: tuple[str, ...] = ()
    harmful: str = ""
    names_interfaces: bool = False

    def is_harmful(self, value: str | None, interfaces: Collection[str]) -> bool:
        """Return whether the value is harmful on nodes with these interfaces, if they are known."""
        if value is None or "$" in value:  # known on the node only
            return not (self.values or self.harmful or self.names_interfaces)
        if self.names_interfaces and interfaces:
            return not any(_names(value, interface) for interface in interfaces)
        if self.harmful:
            return re.fullmatch(self.harmful, value, re.IGNORECASE) is not None
        return not self.values or value in self.values


def _names(value: str, interface: str) -> bool:
    """Return whether NCCL's list of interfaces has the interface.

    `^` excludes, `=` compares whole names; otherwise a name is a prefix (NCCL user guide,
    NCCL_SOCKET_IFNAME, 2026-11-20).
    """
    excludes, text = value.startswith("^"), value.lstrip("^")
    exact, text = text.startswith("="), text.lstrip("=")
    parts = [part.partition(":")[0] for part in text.split(",") if part]
    matches = any(interface == p if exact else interface.startswith(p) for p in parts)
    return matches != excludes


_LINES = PresetVariable(
    "NCCL_DEBUG", "INFO", "NCCL prints which network it uses; these lines are the proof",
    ANY, NCCL_DOCS,
)  # fmt: skip
_SOCKETS = PresetVariable(
    "NCCL_SOCKET_IFNAME", "^docker,lo,veth",
    "ranks find each other by an address that other nodes can reach; excluded names, because"
    " interfaces have different names on different types and images",
    ANY, NCCL_TESTS,
)  # fmt: skip
_GLOO = PresetVariable(
    "GLOO_SOCKET_IFNAME", INTERFACE,
    "Gloo has no exclusions and uses the address of the host name: on many images 127.0.1.1,"
    " which other nodes cannot reach",
    ANY, "TI-ONE sets it too; what Gloo does is from memory",
)  # fmt: skip
_HCA = PresetVariable(
    "NCCL_IB_HCA", HCAS, "NCCL does not use devices of another link layer (storage)",
    ANY, NCCL_DOCS,
)  # fmt: skip

HCC_SETTINGS = tuple(
    PresetVariable(name, value, reason, versions, TI_ONE)
    for name, value, reason, versions in (
        ("NCCL_IB_GID_INDEX", "3", "the GID of RoCE v2 over IPv4 there", ANY),
        ("NCCL_IB_SL", "3", "the lossless service level of the fabric", ANY),
        ("NCCL_CHECK_DISABLE", "1", "no checks of arguments; NCCL calls it NCCL_CHECKS_DISABLE",
         "none known"),
        ("NCCL_P2P_DISABLE", "0", "GPUs of a node use NVLink", ANY),
        ("NCCL_IB_DISABLE", "0", "NCCL uses its RDMA transport", ANY),
        ("NCCL_LL_THRESHOLD", "16384", "NCCL's low-latency protocol up to this number of bytes",
         "before NCCL 2.5 (from memory)"),
        ("NCCL_IB_CUDA_SUPPORT", "1", "GPUDirect RDMA",
         "before NCCL 2.4, NCCL_NET_GDR_LEVEL since (from memory)"),
        ("NCCL_IB_HCA", "mlx5_bond", "the bonded devices of these machines, by their prefix", ANY),
        ("NCCL_NET_GDR_LEVEL", "2", "GPUDirect RDMA between devices below PCI switches", ANY),
        ("NCCL_IB_QPS_PER_CONNECTION", "4", "one connection uses several paths", ANY),
        ("NCCL_IB_TC", "160", "the lossless traffic class of the fabric", ANY),
        ("NCCL_PXN_DISABLE", "1", "no path over another GPU's network card", "NCCL 2.12 and later"),
        ("NCCL_IB_TIMEOUT", "24", "NCCL waits longer for a busy fabric", ANY),
        ("NCCL_DEBUG", "INFO", _LINES.reason, ANY),
        ("NCCL_SOCKET_IFNAME", "eth0", "the interface of these machines", ANY),
        ("GLOO_SOCKET_IFNAME", "eth0", "the interface of these machines", ANY),
        ("TCCL_TOPO_AFFINITY", "4", "for TCCL, Tencent's version of NCCL", "TCCL"),
    )
)  # fmt: skip
"""The values are TI-ONE's. The reasons are the variables' meanings in NCCL's user guide, or from
memory if they are not in it."""

EFA_SETTINGS = (
    _LINES,
    _SOCKETS,
    _GLOO,
    PresetVariable(
        "FI_EFA_USE_HUGE_PAGE", "0",
        "fork() of a process with huge pages fails with ENOMEM (PyTorch's data loaders, Ray's"
        " workers). Without them EFA is a little slower",
        "libfabric with EFA, all", "awsome-distributed-ai, efa-cheatsheet.md, 2026-11-26",
        is_for_forks=True,
    ),
    PresetVariable(
        "NCCL_SHM_USE_CUDA_MEMCPY", "1",
        "transfers between GPUs of one node through the host's memory are twice as fast",
        "NCCL 2.12 and later (from memory)", EFA_TABLE, ("g5", "g6"),
    ),
    PresetVariable(
        "NCCL_MNNVL_ENABLE", "1", "GPUs of one UltraServer reach each other by NVLink",
        "NCCL 2.21 and later (from memory)",
        "awsome-distributed-ai, its manifest for GB200, 2026-11-20", ("p6e-gb200",),
    ),
    PresetVariable(
        "NCCL_NVLS_ENABLE", "1", "reductions are done in the NVLink switch",
        "NCCL 2.18.5 and later", "awsome-distributed-ai, its manifest for GB200, 2026-11-20",
        ("p6e-gb200",),
    ),
)  # fmt: skip

VERBS_SETTINGS = (_LINES, _SOCKETS, _GLOO, _HCA)
"""The variables of InfiniBand and RoCE."""

SOCKET_SETTINGS = (
    PresetVariable(
        "NCCL_NET", "Socket", "NCCL uses sockets even if the node has a faster network",
        ANY, NCCL_DOCS,
    ),
    _SOCKETS,
    _GLOO,
)  # fmt: skip

ANY_UNWISE = (
    BadSetting(
        "NCCL_P2P_DISABLE", "disables NVLink between the GPUs of a node", "leave it out",
        NCCL_DOCS, ("1",),
    ),
)  # fmt: skip
"""Variables that harm with every preset."""

RDMA_UNWISE = (
    BadSetting(
        "NCCL_NET", "makes NCCL use sockets", "leave it out, or set `network: tcp`",
        NCCL_DOCS, ("Socket",),
    ),
    BadSetting(
        "NCCL_DEBUG", "suppresses the lines that prove RDMA",
        "leave it out, or set `verify: off`", NCCL_DOCS, ("WARN", "VERSION"),
        harmful=r"(?!(?:info|trace|abort)$).*",
    ),
    BadSetting(
        "NCCL_DEBUG_SUBSYS", "suppresses the lines that prove RDMA, unless it has INIT and NET",
        "leave it out, add INIT,NET, or set `verify: off`", NCCL_DOCS, ("COLL",),
        harmful=r"(?!\^)(?!(?=.*\b(?:init|all)\b)(?=.*\b(?:net|all)\b)).+|\^.*\b(?:init|net|all)\b.*",
    ),
    BadSetting(
        "NCCL_DEBUG_FILE", "writes the lines that prove RDMA into a file",
        "leave it out, or set `verify: off`", NCCL_DOCS,
    ),
)  # fmt: skip
"""Variables that harm with every preset that promises RDMA."""

OBSOLETE = (
    BadSetting(
        "NCCL_IB_CUDA_SUPPORT", "was replaced by NCCL_NET_GDR_LEVEL in NCCL 2.4 (from memory)",
        "leave it out", NCCL_DOCS,
    ),
    BadSetting(
        "NCCL_LL_THRESHOLD", "is ignored since NCCL 2.5 (from memory)", "leave it out", NCCL_DOCS,
    ),
)  # fmt: skip
"""Variables of earlier versions of NCCL, which TI-ONE still sets."""

VERBS_UNWISE = (
    BadSetting(
        "NCCL_IB_DISABLE", "makes NCCL fall back to sockets", "leave it out, or set `network: tcp`",
        NCCL_DOCS, ("1",),
    ),
)  # fmt: skip

ROCE_UNWISE = (
    BadSetting(
        "NCCL_IB_GID_INDEX", "is not needed since NCCL 2.21, which finds it on each node",
        "leave it out unless NCCL is older", NCCL_DOCS,
    ),
)  # fmt: skip

EFA_UNWISE = (
    BadSetting(
        "FI_PROVIDER", "keeps libfabric from its provider for EFA",
        "leave it out, or set `network: tcp`", "libfabric, src/fabric.c, 2026-11-27", ("tcp",),
        harmful=r"(?!\^)(?!.*\befa\b).+|\^.*\befa\b.*",
    ),
    BadSetting(
        "FI_EFA_USE_DEVICE_RDMA", "is obsolete since aws-ofi-nccl 1.7 and libfabric 1.18",
        "leave it out", EFA_TABLE,
    ),
    BadSetting(
        "FI_EFA_FORK_SAFE", "is obsolete: aws-ofi-nccl sets it if necessary",
        "leave it out", EFA_TABLE,
    ),
    BadSetting(
        "RDMAV_FORK_SAFE", "must not be set with EFA",
        "leave it out; the preset sets FI_EFA_USE_HUGE_PAGE=0 against ENOMEM in fork()",
        CHEATSHEET,
    ),
    BadSetting(
        "FI_EFA_SET_CUDA_SYNC_MEMOPS", "is obsolete since EFA's installer 1.29.1",
        "leave it out", EFA_TABLE,
    ),
    BadSetting(
        "FI_EFA_ENABLE_SHM_TRANSFER", "changes nothing for NCCL", "leave it out", EFA_TABLE,
    ),
    BadSetting(
        "NCCL_PROTO", "was needed up to aws-ofi-nccl 1.5; now it disables faster protocols",
        "leave it out", EFA_TABLE,
    ),
    *(
        BadSetting(name, "overrides the instance type's value, which aws-ofi-nccl sets",
                   "leave it out", PLATFORM)
        for name in (
            "NCCL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_NVLSTREE_MAX_CHUNKSIZE",
            "NCCL_NVLS_CHUNKSIZE", "NCCL_NET_FORCE_FLUSH", "NCCL_NETDEVS_POLICY", "NCCL_TOPO_FILE",
            "NCCL_TUNER_PLUGIN",
        )
    ),
    *(
        BadSetting(name, "tunes sockets, and wastes CPU time with EFA", "leave it out", EFA_TABLE)
        for name in ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_MIN_NCHANNELS")
    ),
    BadSetting(
        "NCCL_NET_PLUGIN", "prevents NCCL from loading the plugin for EFA",
        "leave it out, or set `network: tcp`", NCCL_DOCS, ("none",),
    ),
    *(
        BadSetting(name, "names an interface that EC2's instances do not have",
                   "leave it out" if "HYDRA" in name else "leave it out: the preset sets it",
                   "EC2 names them ens… or enp… (from memory)",
                   ("eth0",), harmful=r"=?(?:eth|ib|bond|eno|em|mlx|hsn|docker|lo)[\w.]*(?:,.*)?",
                   names_interfaces=True)
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include",
                     "OMPI_MCA_oob_tcp_if_include", "HYDRA_IFACE", "I_MPI_HYDRA_IFACE")
    ),
    BadSetting(
        "NCCL_IB_HCA", "chooses among InfiniBand's and RoCE's devices, which EC2's instances do not"
        " have", "leave it out", NCCL_DOCS,
    ),
)  # fmt: skip


_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_VALUE = r"""(?:"([^"\n]*)"|'([^'\n]*)'|((?:(?!,[A-Z][A-Z0-9_]*=)[^\s;&|)"'])*))"""
_ASSIGNED = re.compile(rf"(?<![\w.$/{{-])([A-Z][A-Z0-9]*(?:_\w+)+)=(?!=){_VALUE}")
_BY_OPTION = re.compile(rf"(?:^|\s)-?-g?env\s+([A-Z][A-Z0-9]*(?:_\w+)+)\s+(?!-){_VALUE}")
_BY_PYTHON = re.compile(
    r"""(?:environ(?:\[|\.setdefault\()|putenv\()\s*["']([A-Z]\w+)["']\s*(?:\]\s*=(?!=)|,)\s*"""
    rf"{_VALUE}"
)
# `os.environ.update({…})`, env_vars of Ray in Python and JSON.
_BY_MAPPING = re.compile(rf"""["']([A-Z][A-Z0-9]*(?:_\w+)+)["']\s*:\s*(?=["']){_VALUE}""")
_OPTION = re.compile(
    r"(?:^|\s)(-?-(?:mca|prtemca|pmixmca)\s+(?:btl|oob)_tcp_if_include|-iface"
    rf"|--network-interfaces?)[\s=]+{_VALUE}"
)
_OF_OPTIONS = {"-iface": "HYDRA_IFACE", "--network-interface": "NCCL_SOCKET_IFNAME"}


@dataclass(frozen=True)
class UserSetting:
    """A variable that the user sets, its text, and where.

    `value` is None for a secret. `where` is `env`, `mpirun_args`, `commands`, or the line of a
    script: `train.sh:3`.
    """

    name: str
    value: str | None
    where: str


def user_settings(run: Run, scripts: Mapping[str, str]) -> tuple[UserSetting, ...]:
    """Return the run's own variables, those of all roles included, each once for each place.

    `scripts` are texts that the commands start, by path.
    """
    return tuple(dict.fromkeys((*_settings(run), *_of_scripts(scripts))))


def commands_of(run: Run) -> list[str]:
    """Return the commands of the run and of all its roles."""
    commands = [*(getattr(run, "commands", None) or ())]
    return [*commands, *(text for role in run.roles.values() for text in role.commands or ())]


def _of_scripts(scripts: Mapping[str, str]) -> Iterator[UserSetting]:
    for path, text in scripts.items():
        for name, value, line in _assignments(text):
            yield UserSetting(name, value, f"{path}:{line}")


def _settings(run: Run) -> Iterator[UserSetting]:
    for env in (run.env, *(role.env for role in run.roles.values())):
        for name, text in env.items():
            yield UserSetting(name, None if isinstance(text, Secret) else text, "env")
    if isinstance(run, Mpirun):
        for name, value, _ in _assignments(" ".join(run.mpirun_args)):
            yield UserSetting(name, value, "mpirun_args")
    for text in commands_of(run):
        for name, value, _ in _assignments(text):
            yield UserSetting(name, value, "commands")


def _assignments(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield name and value of each variable that the text sets, and the number of its line."""
    text = _COMMENT.sub("", text.replace("\\\n", " \n"))
    for pattern in (_ASSIGNED, _BY_OPTION, _BY_PYTHON, _BY_MAPPING, _OPTION):
        line, end = 1, 0
        for match in pattern.finditer(text):
            line += text.count("\n", end, match.start(1))
            end = match.start(1)
            name, *values = match.groups()
            if pattern is _OPTION:
                name = _OF_OPTIONS.get(name.rstrip("s"), f"OMPI_MCA_{name.split()[-1]}")
            value = next((v for v in values if v is not None), "")
            yield name, value, line
